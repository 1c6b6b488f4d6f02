"""The values of a config that decide which workloads a job has and where they are placed, as verl 0.9 reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RUNTIME_ENV = "runtime_env"
"""The part of a config that is not verl's: `env_vars` of the job, as in `ray job submit --runtime-env-json`."""

ROLLOUT = "actor_rollout_ref.rollout"
REWARD_MODEL = "reward.reward_model"


class Settings:
    """The values of a whole config by dotted name, with interpolations resolved; None for a name that is missing."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        from omegaconf import OmegaConf

        self._config = OmegaConf.create(dict(config))

    def __getitem__(self, name: str) -> Any:
        from omegaconf import OmegaConf

        value = OmegaConf.select(self._config, name)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def number(self, name: str, otherwise: int = 1) -> int:
        """A count; `otherwise` if it is null or missing."""
        value = self[name]
        return otherwise if value is None else int(value)

    @property
    def devices(self) -> int:
        """How many devices verl's global pool has, which actor, critic and rollout servers share."""
        return self.number("trainer.nnodes") * self.number("trainer.n_gpus_per_node")

    @property
    def has_critic(self) -> bool:
        told = self["critic.enable"]
        return bool(told) if told is not None else self["algorithm.adv_estimator"] == "gae"

    @property
    def has_reference(self) -> bool:
        """Whether there is a reference. It is in the actor's workers: a second model, or the actor without LoRA."""
        return bool(self["algorithm.use_kl_in_reward"] or self["actor_rollout_ref.actor.use_kl_loss"])

    @property
    def server_devices(self) -> int:
        """How many devices one rollout server takes."""
        return self.number(f"{ROLLOUT}.tensor_model_parallel_size") * self.number(f"{ROLLOUT}.data_parallel_size")

    @property
    def has_reward_model(self) -> bool:
        return bool(self[f"{REWARD_MODEL}.enable"])

    @property
    def reward_pool(self) -> tuple[int, int]:
        """Nodes of the reward model's servers, and devices on each. (0, 0): it shares those of the global pool."""
        if not (self.has_reward_model and self[f"{REWARD_MODEL}.enable_resource_pool"]):
            return 0, 0
        return self.number(f"{REWARD_MODEL}.nnodes", 0), self.number(f"{REWARD_MODEL}.n_gpus_per_node", 0)

    @property
    def scorer_devices(self) -> int:
        """How many devices one server of the reward model takes."""
        kinds = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
        sizes = [self.number(f"{REWARD_MODEL}.rollout.{kind}") for kind in kinds]
        return sizes[0] * sizes[1] * sizes[2]

    def model_devices(self, section: str) -> int:
        """How many devices one copy of a Megatron model takes; 1 for other engines, which take any number."""
        if self[f"{section}.strategy"] != "megatron":
            return 1
        kinds = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        sizes = [self.number(f"{section}.megatron.{kind}") for kind in kinds]
        return sizes[0] * sizes[1] * sizes[2]

    @property
    def env(self) -> dict[str, str]:
        """The environment that the launch script and then `ray_init` of the config set for all processes."""
        told = (self[f"{RUNTIME_ENV}.env_vars"], self["ray_kwargs.ray_init.runtime_env.env_vars"])
        return {str(name): str(value) for env in told for name, value in (env or {}).items()}

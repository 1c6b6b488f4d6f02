"""Values that can't be together, or that dlrl can't run.

verl finds most of the first kind itself, when its command has already started.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_verl.config.places import Places
from dlrl_verl.config.settings import REWARD_MODEL, ROLLOUT, Settings

ACTOR = "actor_rollout_ref.actor"
REFERENCE = "actor_rollout_ref.ref"
ENGINES = ("fsdp", "fsdp2", "fsdp_turbo", "veomni", "megatron")
TORCH_OPTIMIZERS = ("Adam", "AdamW", "SGD")
MEGATRON_OPTIMIZERS = ("adam", "sgd")


def contradictions(settings: Settings, places: Places) -> list[str]:
    """Every contradiction, with the places of the keys that are part of it."""
    judge = _Judge(settings, places)
    early = (judge.counts, judge.unsupported, judge.state, judge.servers, judge.rollout, judge.reward_model)
    first = [problem for rule in early for problem in rule()]
    late = (judge.parallelism, judge.scorers, judge.batches)
    return first or [problem for rule in late for problem in rule()]


class _Judge:
    def __init__(self, settings: Settings, places: Places) -> None:
        self._get = settings
        self._places = places

    def _shown(self, key: str) -> str:
        """'trainer.nnodes=2' (train.sh:4), or that it is the default."""
        value = self._get[key]
        return f"'{key}={'null' if value is None else value}' ({self._places.of(key)})"

    def _list(self, *keys: str) -> str:
        return " and ".join(self._shown(key) for key in keys)

    # ---- first of all

    def counts(self) -> Iterator[str]:
        for key in ("trainer.nnodes", "trainer.n_gpus_per_node", f"{ROLLOUT}.tensor_model_parallel_size"):
            value = self._get[key]
            if not isinstance(value, int) or value < 1:
                yield f"{self._shown(key)} must be a whole number from 1 on"

    def unsupported(self) -> Iterator[str]:
        mode = "trainer.v1.trainer_mode"
        if self._get["trainer.use_v1"] and self._get[mode] not in (None, "sync"):
            shown = self._shown(mode)
            yield f"{shown} trains on samples of older weights; dlrl drives verl's synchronous PPO: say 'sync'"
        if self._get["algorithm.filter_groups.enable"]:
            shown = self._shown("algorithm.filter_groups.enable")
            yield f"{shown} is of verl's v1 trainer alone, and dlrl drives the other one; leave it out"
        if self._get["actor_rollout_ref.hybrid_engine"] is False:
            yield f"{self._shown('actor_rollout_ref.hybrid_engine')} leaves no rollout servers; verl's PPO needs true"
        if self._get["distillation.enabled"]:
            yield f"{self._shown('distillation.enabled')} needs a teacher, and dlrl has no role for one"

    def state(self) -> Iterator[str]:
        """Engines and optimizers whose state a commit can't hold."""
        for section in (ACTOR, *(("critic",) if self._get.has_critic else ())):
            strategy, optimizer = f"{section}.strategy", f"{section}.optim.optimizer"
            if self._get[strategy] not in (None, *ENGINES):
                yield f"{self._shown(strategy)}: dlrl can't commit the state of this engine; say {_either(ENGINES)}"
            elif self._get[strategy] == "megatron":
                yield from self._megatron_state(section, optimizer)
            elif self._get[strategy] == "veomni":
                continue  # it has names of its own for optimizers, and wraps some: the first commit judges their class
            elif self._get[optimizer] not in (None, *TORCH_OPTIMIZERS):
                names = _either(TORCH_OPTIMIZERS)
                yield f"{self._shown(optimizer)}: dlrl can't commit the state of this optimizer; say {names}"
            elif self._get[f"{section}.optim.optimizer_impl"] not in (None, "torch.optim"):
                shown = self._shown(f"{section}.optim.optimizer_impl")
                yield f"{shown}: dlrl can't commit the state of these optimizers; say 'torch.optim'"

    def _megatron_state(self, section: str, optimizer: str) -> Iterator[str]:
        if self._get[optimizer] not in (None, *MEGATRON_OPTIMIZERS):
            names = _either(MEGATRON_OPTIMIZERS)
            yield f"{self._shown(optimizer)}: dlrl can't commit the state of this optimizer; say {names}"
        whole = f"{section}.megatron.use_megatron_fsdp"
        if self._get[whole]:
            yield f"{self._shown(whole)}: dlrl can't commit the state of Megatron's own FSDP; leave it out"
        for late in ("megatron.override_ddp_config", "optim.override_optimizer_config"):
            key = f"{section}.{late}.overlap_param_gather"
            if self._get[key]:
                yield f"{self._shown(key)} leaves weights incomplete between two steps, so dlrl can't commit them"

    def servers(self) -> Iterator[str]:
        """What the rollout servers are, and how weights reach them."""
        name = f"{ROLLOUT}.name"
        if self._get[name] is None:
            yield f"key '{name}' is missing; say which engine answers: 'vllm'"
        elif self._get[name] != "vllm":
            yield f"{self._shown(name)}: dlrl can't run rollouts on this engine yet; say 'vllm'"
        if self._get[f"{ROLLOUT}.disaggregation.enabled"]:
            shown = self._shown(f"{ROLLOUT}.disaggregation.enabled")
            yield f"{shown}: dlrl can't run prefill and decode apart from each other yet; leave it out"
        backend = f"{ROLLOUT}.checkpoint_engine.backend"
        if self._get[backend] not in (None, "naive"):
            shown = self._shown(backend)
            yield f"{shown} is for rollouts on devices of their own; here they share the actor's: say 'naive'"

    def rollout(self) -> Iterator[str]:
        if self._get[f"{ROLLOUT}.mode"] == "sync":
            yield f"{self._shown(f'{ROLLOUT}.mode')} was removed from verl; leave it out, or say 'async'"
        if self._get.number(f"{ROLLOUT}.pipeline_model_parallel_size") > 1:
            yield f"{self._shown(f'{ROLLOUT}.pipeline_model_parallel_size')} is not implemented in verl; say 1"
        expert = self._get.number(f"{ROLLOUT}.expert_parallel_size")
        kinds = tuple(f"{ROLLOUT}.{kind}" for kind in ("tensor_model_parallel_size", "data_parallel_size"))
        if expert > 1 and expert != self._get.number(kinds[0]) * self._get.number(kinds[1]):
            yield f"{self._shown(f'{ROLLOUT}.expert_parallel_size')} must be the product of {self._list(*kinds)}"
        if self._get[f"{ROLLOUT}.val_kwargs.do_sample"] and not self._get[f"{ROLLOUT}.temperature"] > 0:
            asks = self._shown(f"{ROLLOUT}.val_kwargs.do_sample")
            yield f"{asks} needs a temperature above 0, not {self._shown(f'{ROLLOUT}.temperature')}"

    def reward_model(self) -> Iterator[str]:
        if not self._get.has_reward_model:
            return
        name, path = f"{REWARD_MODEL}.rollout.name", f"{REWARD_MODEL}.model_path"
        if self._get[name] != "vllm":
            yield f"{self._shown(name)}: dlrl can't run a reward model on this engine yet; say 'vllm'"
        if not self._get[path]:
            yield f"{self._shown(f'{REWARD_MODEL}.enable')} needs '{path}'"
        if self._get[f"{REWARD_MODEL}.enable_resource_pool"]:
            for key in (f"{REWARD_MODEL}.nnodes", f"{REWARD_MODEL}.n_gpus_per_node"):
                if self._get.number(key, 0) < 1:
                    yield f"{self._shown(key)} must be a whole number from 1 on: the reward model has its own devices"
            yield from self._streamed_scores()

    def _streamed_scores(self) -> Iterator[str]:
        """With devices of its own, a reward model is asked while others still generate; by whom it is not woken up."""
        pool = self._shown(f"{REWARD_MODEL}.enable_resource_pool")
        function, sleeps = "reward.custom_reward_function.path", f"{REWARD_MODEL}.rollout.free_cache_engine"
        if not self._get[function]:
            yield f"{pool} needs '{function}': verl asks such a model by a function only"
        if self._get[sleeps] is not False:
            yield f"{pool} needs '{sleeps}=False', not {self._shown(sleeps)}: nobody wakes such a model up"

    # ---- once the counts are sane

    def parallelism(self) -> Iterator[str]:
        pool = self._list("trainer.nnodes", "trainer.n_gpus_per_node")
        size = self._get.server_devices
        if self._get.devices % size:
            tensor = self._shown(f"{ROLLOUT}.tensor_model_parallel_size")
            yield f"{pool} make {self._get.devices} devices; with {tensor} they must be a multiple of {size}"
        for section in (ACTOR, *(("critic",) if self._get.has_critic else ())):
            size = self._get.model_devices(section)
            if self._get.devices % size:
                kinds = [f"{section}.megatron.{kind}_model_parallel_size" for kind in ("tensor", "pipeline")]
                asks = self._list(*kinds, f"{section}.megatron.context_parallel_size")
                yield f"{pool} make {self._get.devices} devices; with {asks} they must be a multiple of {size}"
        ulysses = f"{ACTOR}.ulysses_sequence_parallel_size"
        padding = "actor_rollout_ref.model.use_remove_padding"
        if self._get.number(ulysses) > 1 and not self._get[padding]:
            yield f"{self._shown(ulysses)} needs '{padding}=True', not {self._shown(padding)}"

    def scorers(self) -> Iterator[str]:
        """Whether the servers of the reward model fill its devices."""
        nodes, each = self._get.reward_pool
        keys = (f"{REWARD_MODEL}.nnodes", f"{REWARD_MODEL}.n_gpus_per_node")
        if not nodes:
            nodes, each = self._get.number("trainer.nnodes"), self._get.number("trainer.n_gpus_per_node")
            keys = ("trainer.nnodes", "trainer.n_gpus_per_node")
        size = self._get.scorer_devices
        if self._get.has_reward_model and nodes * each % size:
            tensor = self._shown(f"{REWARD_MODEL}.rollout.tensor_model_parallel_size")
            yield f"{self._list(*keys)} make {nodes * each} devices; with {tensor} they must be a multiple of {size}"

    def batches(self) -> Iterator[str]:
        if not self._get[f"{ACTOR}.use_dynamic_bsz"]:
            yield from self._whole_batch()
            yield from self._mini_batch(ACTOR)
            yield from self._one_of(ACTOR, "ppo_micro_batch_size")
            yield from self._one_of(ROLLOUT, "log_prob_micro_batch_size")
            if self._get.has_reference:
                yield from self._one_of(REFERENCE, "log_prob_micro_batch_size")
        if self._get.has_critic and not self._get["critic.use_dynamic_bsz"]:
            yield from self._mini_batch("critic")
            yield from self._one_of("critic", "ppo_micro_batch_size")

    def _whole_batch(self) -> Iterator[str]:
        size = self._get.model_devices(ACTOR)
        smallest = self._get.devices
        if self._get[f"{ACTOR}.strategy"] == "megatron":
            smallest = self._get.devices // size * self._get.number(f"{ACTOR}.ppo_micro_batch_size_per_gpu")
        samples = self._get.number("data.train_batch_size") * self._get.number(f"{ROLLOUT}.n")
        if smallest and samples % smallest:
            asks = self._list("data.train_batch_size", f"{ROLLOUT}.n")
            yield f"{asks} make {samples} samples; the smallest batch of all devices is {smallest}, so say a multiple"

    def _mini_batch(self, section: str) -> Iterator[str]:
        whole, mini = "data.train_batch_size", f"{section}.ppo_mini_batch_size"
        if self._get.number(whole) < self._get.number(mini):
            yield f"{self._shown(whole)} is less than {self._shown(mini)}"

    def _one_of(self, section: str, name: str) -> Iterator[str]:
        old, new = f"{section}.{name}", f"{section}.{name}_per_gpu"
        given = [key for key in (old, new) if self._get[key] is not None]
        if not given:
            yield f"key '{new}' is missing; say it, or let verl find it with 'use_dynamic_bsz=True'"
        elif len(given) == 2:
            yield f"{self._list(old, new)} say the same in two ways; leave the first out"


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f"'{name}'" for name in names)

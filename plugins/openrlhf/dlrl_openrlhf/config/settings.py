"""The values that decide who is there and who sits with whom: what was said, over OpenRLHF's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlrl_openrlhf.config.flag_table import FlagTable


class Settings:
    """Every value by its dotted name, and what follows from them, as OpenRLHF's own `train` decides it."""

    def __init__(self, table: FlagTable, said: Mapping[str, Any]) -> None:
        self._table = table
        self._said = said

    def __getitem__(self, name: str) -> Any:
        return self._said[name] if name in self._said else self._table.default(name)

    @property
    def is_async(self) -> bool:
        return bool(self["train.async_enable"])

    @property
    def has_critic(self) -> bool:
        return bool(self["algo.advantage.estimator"] == "gae")

    @property
    def has_reference(self) -> bool:
        return bool(self["algo.kl.init_coef"] > 0)

    @property
    def has_remote_reward(self) -> bool:
        """Rewards come from a function, a server or the agent, not from a reward model."""
        return bool(self["reward.remote_url"] or self["train.agent_func_path"])

    @property
    def sections(self) -> list[str]:
        """The names that OpenRLHF has for the models that this job trains or asks."""
        is_there = {
            "actor": True,
            "ref": self.has_reference,
            "critic": self.has_critic,
            "reward": not self.has_remote_reward,
        }
        return [section for section, there in is_there.items() if there]

    def processes(self, section: str) -> int:
        """How many processes, and devices, a model has."""
        return int(self[f"{section}.num_nodes"] * self[f"{section}.num_gpus_per_node"])

    @property
    def engine_devices(self) -> int:
        return int((self["vllm.num_engines"] or 0) * self["vllm.tensor_parallel_size"])

    @property
    def packs_samples(self) -> bool:
        """Also where OpenRLHF turns it on by itself."""
        return bool(self["ds.packing_samples"] or self["train.dynamic_batch_enable"] or self["ds.ring_attn_size"] > 1)

    @property
    def shared_devices(self) -> list[list[str]]:
        """Groups of models that share devices; 'vllm' are the engines."""
        there, with_actor, pair = self.sections, ["actor"], ["critic", "reward"]
        is_all = self["train.colocate_all"]
        has_pair = self["train.colocate_critic_reward"] and self.has_critic
        if is_all or self["train.colocate_actor_ref"]:
            with_actor.append("ref")
        if is_all and not has_pair:
            with_actor += pair
        groups = [[one for one in group if one in there] for group in (with_actor, pair if has_pair else [])]
        if is_all and not self.is_async:
            groups[0].append("vllm")
        return [group for group in groups if len(group) > 1]

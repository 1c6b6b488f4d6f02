"""Flags that can't be together. OpenRLHF finds some of them itself, mostly when everything has started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlrl_openrlhf.config.flag_table import FlagTable
from dlrl_openrlhf.config.said import Said
from dlrl_openrlhf.config.settings import Settings

_GROUP_ESTIMATORS = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")


def contradictions(table: FlagTable, said: Mapping[str, Said]) -> list[str]:
    """Every contradiction, with the places of the flags that are part of it."""
    judge = _Judge(Settings(table, {name: one.value for name, one in said.items()}), said)
    rules = (judge.missing, judge.counts, judge.shared_devices, judge.algorithm, judge.rollout, judge.images)
    return [problem for rule in rules for problem in rule()]


class _Judge:
    def __init__(self, settings: Settings, said: Mapping[str, Said]) -> None:
        self._get = settings
        self._said = said

    def _shown(self, name: str) -> str:
        """'--actor.num_nodes 2 (train.sh:4)', or that it is the default."""
        value = self._get[name]
        text = "" if value is True else f" {' '.join(map(str, value)) if isinstance(value, list) else value}"
        where = self._said[name].where if name in self._said else "the default"
        return f"'--{name}{text}' ({where})"

    def missing(self) -> Iterator[str]:
        for name in ("actor.model_name_or_path", "data.prompt_dataset"):
            if not self._get[name]:
                yield f"flag '--{name}' is missing; OpenRLHF can't start without it"
        if not self._get.has_remote_reward and not self._get["reward.model_name_or_path"]:
            yield (
                "nobody gives rewards; say '--reward.model_name_or_path', '--reward.remote_url' or "
                "'--train.agent_func_path'"
            )
        if not self._get["vllm.num_engines"] or self._get["vllm.num_engines"] < 0:
            yield f"{self._shown('vllm.num_engines')} leaves no rollout engine, and dlrl needs one; say 1 or more"

    def counts(self) -> Iterator[str]:
        names = [f"{section}.{count}" for section in self._get.sections for count in ("num_nodes", "num_gpus_per_node")]
        for name in (*names, "vllm.tensor_parallel_size", "ds.ring_attn_size", "ds.tensor_parallel_size"):
            if self._get[name] < 1:
                yield f"{self._shown(name)} must be at least 1"
                return
        together = self._get["ds.ring_attn_size"] * self._get["ds.tensor_parallel_size"]
        for section in self._get.sections:
            if self._get.processes(section) % together:
                yield (
                    f"'{section}' has {self._get.processes(section)} processes; with "
                    f"{self._shown('ds.ring_attn_size')} and {self._shown('ds.tensor_parallel_size')} "
                    f"it must be a multiple of {together}"
                )
        batches = self._get["rollout.n_samples_per_prompt"] * self._get["rollout.batch_size"]
        if batches // self._get["rollout.micro_batch_size"] < self._get.processes("actor") // together:
            yield (
                f"{self._shown('rollout.batch_size')} with {self._shown('rollout.n_samples_per_prompt')} and "
                f"{self._shown('rollout.micro_batch_size')} is too little for {self._get.processes('actor')} "
                "processes of 'actor'"
            )

    def shared_devices(self) -> Iterator[str]:
        for group in self._get.shared_devices:
            first = group[0]
            for other in group[1:]:
                if other == "vllm":
                    if self._get.engine_devices != self._get.processes(first):
                        yield (
                            f"{self._shown('vllm.num_engines')} x {self._shown('vllm.tensor_parallel_size')} is "
                            f"{self._get.engine_devices} devices and '{first}' has {self._get.processes(first)}; "
                            f"{self._shown('train.colocate_all')} needs as many"
                        )
                elif self._get.processes(other) != self._get.processes(first):
                    yield self._unequal(first, other)

    def _unequal(self, first: str, other: str) -> str:
        asked = ("train.colocate_all", "train.colocate_actor_ref", "train.colocate_critic_reward")
        names = [f"{one}.{count}" for one in (first, other) for count in ("num_nodes", "num_gpus_per_node")]
        differ = ", ".join(self._shown(name) for name in names)
        reason = " and ".join(self._shown(name) for name in asked if self._get[name])
        return f"'{first}' and '{other}' share devices by {reason}, and need equal counts: {differ}"

    def algorithm(self) -> Iterator[str]:
        estimator = self._get["algo.advantage.estimator"]
        if estimator in _GROUP_ESTIMATORS and self._get["rollout.n_samples_per_prompt"] < 2:
            yield (
                f"{self._shown('algo.advantage.estimator')} compares answers to one prompt; "
                f"{self._shown('rollout.n_samples_per_prompt')} must be greater than 1"
            )
        bounds = self._get["algo.advantage.is_correction_threshold"]
        if len(bounds) > 2:
            yield f"{self._shown('algo.advantage.is_correction_threshold')} takes a high bound, or a low and a high one"
        level, mode, gate = (self._get[f"algo.advantage.is_correction_{one}"] for one in ("level", "mode", "gating"))
        if mode == "clip" and level != "off" and (level, gate) != ("token", "ratio"):
            yield (
                f"{self._shown('algo.advantage.is_correction_mode')} goes with level 'token' and gating 'ratio' only, "
                f"not with {self._shown('algo.advantage.is_correction_level')} and "
                f"{self._shown('algo.advantage.is_correction_gating')}"
            )
        yield from self._filtering()

    def _filtering(self) -> Iterator[str]:
        if not self._get["algo.dynamic_filtering_enable"]:
            return
        asks = self._shown("algo.dynamic_filtering_enable")
        low, high = self._get["algo.dynamic_filtering_range"]
        if low >= high:
            yield f"{self._shown('algo.dynamic_filtering_range')} is empty; the first number must be the lower one"
        if not self._get.has_remote_reward:
            yield f"{asks} needs '--reward.remote_url' or '--train.agent_func_path'"
        if self._get["rollout.n_samples_per_prompt"] < 2:
            yield f"{asks} needs more than 1 answer to a prompt, not {self._shown('rollout.n_samples_per_prompt')}"

    def rollout(self) -> Iterator[str]:
        get, shown = self._get, self._shown
        if get["vllm.sync_with_ray"]:
            yield (
                f"{shown('vllm.sync_with_ray')} sends weights by a way that dlrl can't mend when an engine dies; leave "
                "it out, and they go by '--vllm.sync_backend'"
            )
        if get["eval.dataset"] and not get.has_remote_reward:
            yield f"{shown('eval.dataset')} needs '--reward.remote_url' or '--train.agent_func_path'"
        if get.is_async:
            if get["vllm.enable_sleep"] and get["train.colocate_all"]:
                yield f"{shown('vllm.enable_sleep')} does not go with {shown('train.async_enable')}"
            return
        if get["train.partial_rollout_enable"]:
            yield f"{shown('train.partial_rollout_enable')} needs '--train.async_enable'"
        at_once = get["rollout.vllm_generate_batch_size"]
        if at_once and at_once > get["rollout.batch_size"]:
            yield (
                f"{shown('rollout.vllm_generate_batch_size')} is more than {shown('rollout.batch_size')}, "
                "which needs '--train.async_enable'"
            )

    def images(self) -> Iterator[str]:
        if self._get["data.max_images_per_prompt"] < 1:
            return
        asks = self._shown("data.max_images_per_prompt")
        if self._get.has_critic:
            yield f"{asks} does not go with a critic; say another '--algo.advantage.estimator' than 'gae'"
        if self._get.packs_samples:
            yield (
                f"{asks} does not go with packed samples, which '--ds.packing_samples', "
                "'--train.dynamic_batch_enable' and '--ds.ring_attn_size' ask for"
            )

"""RLJobBuilder: say what the job is, in any order; `build` checks all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from dlrl_core.api.assemble import Said, assemble
from dlrl_core.api.job import RLJob
from dlrl_core.roles import RoleType
from dlrl_core.spec.config_value import read_yaml
from dlrl_core.spec.job_spec import PlacementRequest
from dlrl_core.spec.validation import Words, job_words


class RLJobBuilder:
    """Builds an RLJob. No method but `from_file` and `build` raises; `build` reports every problem in one SpecError.

    `total`, `per_node`, `env`, `resource` and the other counts and places belong to the role, or the part of a role,
    that was named last. Each option is declared once, in `dlrl_core.spec.job_spec`.
    """

    def __init__(self) -> None:
        self._said = Said()
        self._role: Words | None = None
        self._part: Words | None = None

    # ---- the job

    def node_num(self, count: int) -> Self:
        """Nodes the job uses, at most."""
        return self._say("node_num", count)

    def device_per_node(self, count: int) -> Self:
        """Devices it uses on each node, at most."""
        return self._say("device_per_node", count)

    def spare_nodes(self, count: int) -> Self:
        """Nodes held back besides node_num, to replace one that fails."""
        return self._say("spare_nodes", count)

    def device_type(self, device_type: str) -> Self:
        """'GPU', 'NPU' or 'CPU'."""
        return self._say("device_type", device_type)

    def config(self, config: Mapping[str, Any] | str | PathLike[str] | list[str] | tuple[str, ...] | Any) -> Self:
        """The training config: a dict, an OmegaConf, a YAML file, or, with a framework, that framework's own words."""
        self._said.config = config
        return self

    def override(self, *overrides: str) -> Self:
        """Single values over the config, such as 'lr=0.1' or 'model.path=/data/m'; the value is read as YAML."""
        self._said.overrides += overrides
        return self

    def global_env(self, env: Mapping[str, str]) -> Self:
        """Environment variables of every process of the job."""
        return self._say("global_env", env)

    def framework(self, name: str) -> Self:
        """Fill trainer, roles and counts from this adapter; whatever else you say wins over it."""
        return self._say("framework", name)

    def restart_budget(self, **limits: float) -> Self:
        """How often within window_s a workload, a role, the job or a node may fail, and backoff_s."""
        return self._say("restart_budget", limits)

    def commits(self, **wishes: Any) -> Self:
        """How often steps are committed: every so many, or within a budget, at_least_s apart; and how they are kept:
        durable_every so many, in state_folder."""
        return self._say("commits", wishes)

    def allow_chaos(self, is_allowed: bool = True) -> Self:
        """Let dlrl chaos break this job."""
        return self._say("allow_chaos", bool(is_allowed))

    def policy(self, name: str) -> Self:
        """The distribution policy, such as 'separate_sync' or 'colocate_sync'."""
        return self._say("policy", name)

    def trainer(self, module: str, class_name: str) -> Self:
        """Module and class of the trainer."""
        return self._say("trainer", {"module": module, "class": class_name})

    def _say(self, option: str, value: object) -> Self:
        self._said.words[option] = dict(value) if isinstance(value, Mapping) else value
        return self

    # ---- roles

    def actor(self, module: str, class_name: str) -> Self:
        return self._begin(RoleType.ACTOR, module, class_name)

    def rollout(self, module: str, class_name: str) -> Self:
        return self._begin(RoleType.ROLLOUT, module, class_name)

    def reference(self, module: str, class_name: str) -> Self:
        return self._begin(RoleType.REFERENCE, module, class_name)

    def reward(self, module: str, class_name: str) -> Self:
        return self._begin(RoleType.REWARD, module, class_name)

    def critic(self, module: str, class_name: str) -> Self:
        return self._begin(RoleType.CRITIC, module, class_name)

    def role(self, name: str | RoleType) -> Self:
        """Go on with a role that a framework fills, to change its options."""
        self._role, self._part = self._said.words.setdefault("roles", {}).setdefault(str(name).lower(), {}), None
        return self

    def part(self, name: str) -> Self:
        """Go on with a named part of the role, such as 'prefill'; its count and place are its own."""
        role = self._role if self._role is not None else self._without_role("part")
        self._part = role.setdefault("parts", {}).setdefault(str(name), {})
        return self

    def _begin(self, role: RoleType, module: str, class_name: str) -> Self:
        self.role(role)
        assert self._role is not None
        if "module" in self._role:
            self._said.problems.append(f"role '{role}' is given 2 times; give it once")
        self._role.update({"module": module, "class": class_name})
        return self

    # ---- options of the role named last, or of its part

    def total(self, count: int) -> Self:
        """How many workloads; of a role with parts, their sum."""
        return self._set("total", count)

    def min_total(self, count: int) -> Self:
        """How few will do where the cluster has no room for all; without it, all or nothing."""
        return self._set("min_total", count)

    def per_node(self, count: int) -> Self:
        """Workloads on each node that has any; without it, on as few nodes as possible."""
        return self._set("per_node", count)

    def env(self, env: Mapping[str, str]) -> Self:
        """Environment variables; they win over global_env, those of a part over those of its role."""
        return self._set("env", env)

    def resource(self, resource: Mapping[str, float | str]) -> Self:
        """Ray resources of one workload; without it, 1 CPU and one device or an even share.

        Such as {'CPU': 2, 'GPU': 0.5} or {'GPU': '1/3'}.
        """
        return self._set("resource", resource)

    def node_labels(self, labels: Mapping[str, str | list[str]]) -> Self:
        """Only nodes with these labels; of each label, one of the values.

        Such as {'ray.io/accelerator-type': 'H100', 'zone': ['a', 'b']}.
        """
        return self._set("node_labels", labels)

    def spread_over(self, label: str) -> Self:
        """A node label, such as a rack: as evenly as possible over its values."""
        return self._set("spread_over", label)

    def pack_into(self, label: str) -> Self:
        """A node label: all on nodes with one and the same value."""
        return self._set("pack_into", label)

    def visible_devices(self, which: str) -> Self:
        """Which devices each process sees: its 'own', those of its 'role' on its node, or all of its 'node'."""
        return self._set("visible_devices", which)

    def failover(self, scope: str) -> Self:
        """What restarts when a process of the role dies: 'workload', 'role', 'subgraph', 'job' or 'stop'.

        Without it, the whole job.
        """
        return self._set("failover", scope)

    def hang_limit(self, seconds: float) -> Self:
        """Seconds; a call that takes longer is taken for dead; without it, no limit."""
        return self._set("hang_limit", seconds)

    def silence_limit(self, seconds: float) -> Self:
        """Seconds within which a frozen process is known; one that only holds Python's lock is not."""
        return self._set("silence_limit", seconds)

    def concurrency(self, calls: int) -> Self:
        """How many calls of async def methods one workload runs side by side; more wait."""
        return self._set("concurrency", calls)

    def state_size(self, size: int | Mapping[str, Any]) -> Self:
        """Bytes of each rank's committed state, for the plan; a framework computes them."""
        return self._set("state_size", size)

    def _set(self, option: str, value: object) -> Self:
        role = self._role if self._role is not None else self._without_role(option)
        owner = self._part if self._part is not None and option in PlacementRequest.model_fields else role
        owner[option] = dict(value) if isinstance(value, Mapping) else value
        return self

    def _without_role(self, method: str) -> Words:
        """Words that are dropped: the option belongs to no role, which is a problem."""
        text = f".{method}() has no role to belong to; call it after .actor(...) or another role"
        self._said.problems.append(text)
        return {}

    # ---- placement

    def with_collocation(self, *roles: str | RoleType) -> Self:
        """Device collocation: these roles share devices, rank i of each is on the same one.

        A part of a role is named as 'rollout.decode'; so it is in the other rules of placement.
        """
        return self._group("with_collocation", roles)

    def with_host_collocation(self, *roles: str | RoleType) -> Self:
        """Host collocation: rank i of each is on the same node, on devices of its own."""
        return self._group("with_host_collocation", roles)

    def without_collocation(self, *roles: str | RoleType) -> Self:
        """No collocation: no two of these roles are on one node."""
        return self._group("without_collocation", roles)

    def with_collocation_all(self) -> Self:
        """All roles share devices."""
        return self._say("with_collocation_all", True)

    def _group(self, option: str, roles: tuple[str | RoleType, ...]) -> Self:
        before = self._said.words.get(option, [])
        return self._say(option, [*(before if isinstance(before, list) else [before]), [str(role) for role in roles]])

    # ---- the end

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """A builder that was told what a job file (YAML) says; see docs/reference/job-file.md.

        Raises SpecError if the file can't be read or is not YAML; all other problems are reported by `build`.
        """
        file = Path(path)
        builder = cls()
        said = builder._said
        said.source = f"'{file}'"
        said.words = job_words(read_yaml(file), said.problems)
        config = said.words.pop("config", None)
        is_file = isinstance(config, str) and config.endswith((".yaml", ".yml"))
        said.config = file.parent / config if is_file else config
        return builder

    def build(self, *, import_classes: bool = True) -> RLJob:
        """The checked job. Raises SpecError with all problems.

        Classes you named are imported to check them; with `import_classes=False` only their source is read.
        """
        return RLJob(assemble(self._said, import_classes=import_classes))

"""RLJobBuilder: say what the job is, in any order; `build` checks all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from dlrl_core.api.assemble import assemble
from dlrl_core.api.draft import JobDraft, RequestDraft, RoleDraft
from dlrl_core.api.job import RLJob
from dlrl_core.roles import RoleType
from dlrl_core.spec.job_spec import CommitSpec, RestartBudget, VisibleDevices
from dlrl_core.spec.survival import FailoverScope


class RLJobBuilder:
    """Builds an RLJob. No method but `build` raises; `build` reports every problem in one SpecError.

    `total`, `per_node`, `env`, `resource` and the other counts and places belong to the role, or the part of a role,
    that was named last.
    """

    def __init__(self) -> None:
        self._draft = JobDraft()
        self._role: RoleDraft | None = None
        self._request: RequestDraft | None = None

    # ---- the job

    def node_num(self, count: int) -> Self:
        """How many nodes the job uses."""
        self._draft.node_num = self._draft.count("node_num", count)
        return self

    def device_per_node(self, count: int) -> Self:
        """How many devices it uses on each node."""
        self._draft.device_per_node = self._draft.count("device_per_node", count)
        return self

    def spare_nodes(self, count: int) -> Self:
        """How many more nodes are held back, to replace one that fails."""
        self._draft.spare_nodes = self._draft.count("spare_nodes", count)
        return self

    def device_type(self, device_type: str) -> Self:
        """'GPU' (the default), 'NPU' or 'CPU'."""
        text = self._draft.text("device_type", device_type)
        self._draft.device_type = text and text.upper()
        return self

    def config(self, config: Mapping[str, Any] | str | PathLike[str] | list[str] | tuple[str, ...] | Any) -> Self:
        """The training config: a dict, an OmegaConf, a YAML file, or, with a framework, that framework's own words."""
        self._draft.config = config
        return self

    def override(self, *overrides: str) -> Self:
        """Single values over the config, such as 'lr=0.1' or 'model.path=/data/m'; the value is read as YAML."""
        self._draft.overrides += overrides
        return self

    def global_env(self, env: Mapping[str, str]) -> Self:
        """Environment variables of every process of the job."""
        self._draft.global_env = self._draft.environment("global_env", env)
        return self

    def framework(self, name: str) -> Self:
        """Fill trainer, roles and counts from an adapter; whatever else you say wins over it."""
        self._draft.framework = self._draft.text("framework", name)
        return self

    def restart_budget(self, **limits: float) -> Self:
        """How often within `window_s` a `workload`, a `role`, the `job` or a `node` is restarted; and `backoff_s`."""
        self._draft.budget = self._draft.model("restart_budget", RestartBudget, limits)
        return self

    def commits(self, **wishes: Any) -> Self:
        """How commits are kept: `durable_every` so many, in `state_folder`."""
        self._draft.commits = self._draft.model("commits", CommitSpec, wishes)
        return self

    def allow_chaos(self, is_allowed: bool = True) -> Self:
        """Let `dlrl chaos` break this job."""
        self._draft.allow_chaos = bool(is_allowed)
        return self

    def policy(self, name: str) -> Self:
        """The distribution policy, such as 'separate_sync' or 'colocate_sync'."""
        self._draft.policy = self._draft.text("policy", name)
        return self

    def trainer(self, module: str, class_name: str) -> Self:
        """Module and class of the trainer."""
        self._draft.trainer = self._draft.class_ref("the trainer", module, class_name)
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
        """Go on with a role that a framework fills, to change its counts, environment or resources."""
        role = self._draft.role_named(name)
        return self._go_on(RoleDraft.of(RoleType.ACTOR) if role is None else self._draft.role(role))

    def _begin(self, role: RoleType, module: str, class_name: str) -> Self:
        if role in self._draft.roles and self._draft.roles[role].cls is not None:
            self._draft.problems.append(f"role '{role}' is given 2 times; give it once")
        draft = self._draft.role(role)
        draft.cls = self._draft.class_ref(f"role '{role}'", module, class_name)
        return self._go_on(draft)

    def _go_on(self, role: RoleDraft) -> Self:
        self._role = self._request = role
        return self

    # ---- the role named last, or its part

    def part(self, name: str) -> Self:
        """Go on with a named part of the role, such as 'prefill'; its count and place are its own."""
        role = self._role or self._nobody("part")
        text = self._draft.text(f"a part of role '{role.role}'", name)
        self._request = role.part(text or "")
        return self

    def total(self, count: int) -> Self:
        """How many workloads the role has."""
        request = self._current("total")
        request.total = self._draft.count(f"total of {request.owner}", count)
        return self

    def min_total(self, count: int) -> Self:
        """How few will do where the cluster has no room for all; without it, all or nothing."""
        request = self._current("min_total")
        request.min_total = self._draft.count(f"min_total of {request.owner}", count)
        return self

    def per_node(self, count: int) -> Self:
        """How many of them sit on each node that has any."""
        request = self._current("per_node")
        request.per_node = self._draft.count(f"per_node of {request.owner}", count)
        return self

    def env(self, env: Mapping[str, str]) -> Self:
        """Environment variables of the role; they win over `global_env`."""
        request = self._current("env")
        request.env = self._draft.environment(f"env of {request.owner}", env)
        return self

    def resource(self, resource: Mapping[str, float | str]) -> Self:
        """Ray resources of one workload of the role, such as {'CPU': 2, 'GPU': 0.5} or {'GPU': '1/3'}."""
        request = self._current("resource")
        request.resource = self._draft.resources(f"resource of {request.owner}", resource)
        return self

    def node_labels(self, labels: Mapping[str, str | list[str]]) -> Self:
        """Only nodes with these labels, such as {'ray.io/accelerator-type': 'H100', 'zone': ['a', 'b']}."""
        request = self._current("node_labels")
        request.node_labels = self._draft.labels(f"node_labels of {request.owner}", labels)
        return self

    def spread_over(self, label: str) -> Self:
        """As evenly as possible over the values of this node label, such as 'rack'."""
        request = self._current("spread_over")
        request.spread_over = self._draft.text(f"spread_over of {request.owner}", label)
        return self

    def pack_into(self, label: str) -> Self:
        """All on nodes with one and the same value of this node label."""
        request = self._current("pack_into")
        request.pack_into = self._draft.text(f"pack_into of {request.owner}", label)
        return self

    def visible_devices(self, which: str) -> Self:
        """Which devices each process sees: its 'own' (the default), its 'role's on its node, or all of its 'node'."""
        role = self._role or self._nobody("visible_devices")
        role.visible_devices = self._draft.choice(f"visible_devices of {role.owner}", which, VisibleDevices)
        return self

    def failover(self, scope: str) -> Self:
        """What restarts when a process of the role dies: 'workload', 'role', 'subgraph', 'job' (default) or 'stop'."""
        role = self._role or self._nobody("failover")
        role.failover = self._draft.choice(f"failover of {role.owner}", scope, FailoverScope)
        return self

    def hang_limit(self, seconds: float) -> Self:
        """A call of the role that takes longer is taken for dead, once its stacks are in the journal."""
        role = self._role or self._nobody("hang_limit")
        role.hang_limit = self._draft.seconds(f"hang_limit of {role.owner}", seconds)
        return self

    def concurrency(self, calls: int) -> Self:
        """How many calls of `async def` methods one workload of the role runs side by side; more wait."""
        role = self._role or self._nobody("concurrency")
        role.concurrency = self._draft.count(f"concurrency of {role.owner}", calls)
        if role.concurrency is not None and role.concurrency < 1:
            self._draft.problems.append(f"concurrency of {role.owner} is {calls}; it must be at least 1")
            role.concurrency = None
        return self

    def _current(self, method: str) -> RequestDraft:
        return self._request or self._nobody(method)

    def _nobody(self, method: str) -> RoleDraft:
        self._draft.problems.append(f".{method}() has no role to belong to; call it after .actor(...) or another role")
        return RoleDraft.of(RoleType.ACTOR)

    # ---- placement

    def with_collocation(self, *roles: str | RoleType) -> Self:
        """Device collocation: these roles share devices, rank i of each is on the same one.

        A part of a role is named as 'rollout.decode'; so it is in the other rules of placement.
        """
        self._draft.with_collocation.append(self._named(roles))
        return self

    def with_host_collocation(self, *roles: str | RoleType) -> Self:
        """Host collocation: rank i of each is on the same node, on devices of its own."""
        self._draft.with_host_collocation.append(self._named(roles))
        return self

    def without_collocation(self, *roles: str | RoleType) -> Self:
        """No collocation: no two of these roles are on one node."""
        self._draft.without_collocation.append(self._named(roles))
        return self

    def _named(self, roles: tuple[str | RoleType, ...]) -> tuple[str, ...]:
        named = [self._draft.seat_named(role) for role in roles]
        return tuple(name for name in named if name is not None)

    def with_collocation_all(self) -> Self:
        """All roles of the job share devices."""
        self._draft.collocate_all = True
        return self

    # ---- the end

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """A builder told by a job file (YAML); see docs/reference/job-file.md."""
        from dlrl_core.api.job_file import tell

        builder = cls()
        tell(builder, Path(path))
        return builder

    def build(self, *, import_classes: bool = True) -> RLJob:
        """The checked job. Raises SpecError with all problems.

        Classes you named are imported to check them; with `import_classes=False` only their source is read.
        """
        return RLJob(assemble(self._draft, import_classes=import_classes))

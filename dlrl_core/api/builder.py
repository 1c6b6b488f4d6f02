"""RLJobBuilder: say what the job is, in any order; `build` checks all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

from dlrl_core.api.assemble import assemble
from dlrl_core.api.draft import JobDraft, RoleDraft
from dlrl_core.api.job import RLJob
from dlrl_core.roles import RoleType


class RLJobBuilder:
    """Builds an RLJob. No method but `build` raises; `build` reports every problem in one SpecError.

    `total`, `per_node`, `env` and `resource` belong to the role named last.
    """

    def __init__(self) -> None:
        self._draft = JobDraft()
        self._role: RoleDraft | None = None

    # ---- the job

    def node_num(self, count: int) -> Self:
        """How many nodes the job uses."""
        self._draft.node_num = self._draft.count("node_num", count)
        return self

    def device_per_node(self, count: int) -> Self:
        """How many devices it uses on each node."""
        self._draft.device_per_node = self._draft.count("device_per_node", count)
        return self

    def device_type(self, device_type: str) -> Self:
        """'GPU' (the default) or 'CPU'."""
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
        self._role = RoleDraft(RoleType.ACTOR) if role is None else self._draft.roles.setdefault(role, RoleDraft(role))
        return self

    def _begin(self, role: RoleType, module: str, class_name: str) -> Self:
        if role in self._draft.roles and self._draft.roles[role].cls is not None:
            self._draft.problems.append(f"role '{role}' is given 2 times; give it once")
        self._role = self._draft.roles.setdefault(role, RoleDraft(role))
        self._role.cls = self._draft.class_ref(f"role '{role}'", module, class_name)
        return self

    # ---- the role named last

    def total(self, count: int) -> Self:
        """How many workloads the role has."""
        role = self._current("total")
        role.total = self._draft.count(f"total of role '{role.role}'", count)
        return self

    def per_node(self, count: int) -> Self:
        """How many of them sit on each node that has any."""
        role = self._current("per_node")
        role.per_node = self._draft.count(f"per_node of role '{role.role}'", count)
        return self

    def env(self, env: Mapping[str, str]) -> Self:
        """Environment variables of the role; they win over `global_env`."""
        role = self._current("env")
        role.env = self._draft.environment(f"env of role '{role.role}'", env)
        return self

    def resource(self, resource: Mapping[str, float]) -> Self:
        """Ray resources of one workload of the role, such as {'CPU': 2, 'GPU': 0.5}."""
        role = self._current("resource")
        role.resource = self._draft.resources(f"resource of role '{role.role}'", resource)
        return self

    def _current(self, method: str) -> RoleDraft:
        if self._role is None:
            self._draft.problems.append(
                f".{method}() has no role to belong to; call it after .actor(...) or another role"
            )
            return RoleDraft(RoleType.ACTOR)
        return self._role

    # ---- placement

    def with_collocation(self, *roles: str | RoleType) -> Self:
        """These roles share devices: rank i of each is on the same one."""
        named = [self._draft.role_named(role) for role in roles]
        self._draft.collocations.append(tuple(role for role in named if role is not None))
        return self

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

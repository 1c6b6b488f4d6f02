"""OpenRLHF's groups of actors over roles; the rest of the seam is dlrl's own."""

from __future__ import annotations

from openrlhf.trainer.ray.launcher import RayActorGroup

from dlrl_adapter_kit.framework_seam import Member
from dlrl_core.trainer.role_group import RoleGroup


class MemberGroup(RayActorGroup):  # type: ignore[misc]
    """OpenRLHF's group of actors over the workloads of a role: its own ways to call them, but none to start them."""

    def __init__(self, group: RoleGroup, duplicate_actors: int) -> None:
        self.duplicate_actors = duplicate_actors
        self._actor_handlers = [Member(group, position) for position in range(len(group))]

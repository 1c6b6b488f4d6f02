"""Replay: what is needed to make parts of a call again, and when that may be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrl_core.trainer.roster import Roster, died_with, is_gone
from dlrl_core.trainer.workload_handle import WorkloadHandle
from dlrl_core.workload.death_reason import LOST

if TYPE_CHECKING:
    from dlrl_core.trainer.role_call import RoleCall
    from dlrl_core.trainer.role_group import RoleMethod


@dataclass(slots=True, kw_only=True)
class Replay:
    """One call as it was made. `start` makes a target's part of it again, if something has changed since."""

    method: RoleMethod
    roster: Roster
    targets: Sequence[WorkloadHandle]
    actors: list[Any]
    """The processes that the call went to."""
    numbers: list[int] | None
    """Of a call of `init`, its number on each target."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    upstream: list[RoleCall]
    """Earlier calls whose results are arguments."""
    mark: tuple[int, int]
    """How often anybody was replaced, and upstream was made again, when the call was made."""
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The same for targets whose part was made again."""

    def has_changed(self, index: int) -> bool:
        """Whether anybody got a new process since this target's part was made."""
        return self.roster.version != self.marks.get(index, self.mark)[0]

    def start(self, index: int, error: Exception) -> Any:
        """Make a target's part again, which failed with this error; None if it would only fail the same way.

        Raises RestartFit if the trainer has to go back to its last commit instead.
        """
        is_lost = isinstance(error, LOST)
        if is_own := is_lost and self._is_of_target(index, error):
            self._replace(index)
        for call in self.upstream:
            call.recover()
        version, redone = self.marks.get(index, self.mark)
        has_changed = is_own or self._redone() != redone
        if not has_changed and (is_lost or not self._was_disturbed(index, self.roster.replaced[version:])):
            return None
        self.marks[index] = (self.roster.version, self._redone())
        self.actors[index] = self.targets[index].ray_actor
        return self.method.start_one(index, self.args, self.kwargs, self.numbers)

    def _redone(self) -> int:
        return sum(call.redone for call in self.upstream)

    def _is_of_target(self, index: int, error: Exception) -> bool:
        """Else it is a process that the arguments were to come from."""
        actor = self.actors[index]
        return getattr(error, "actor_id", None) == actor._actor_id.hex() or is_gone(actor)

    def _replace(self, index: int) -> None:
        target, actor = self.targets[index], self.actors[index]
        self._check_may_repeat(target)
        self.roster.replace(target.name, actor)
        if target.ray_actor is actor and not self.roster.may_repeat(target):
            # It lives, and was out of reach for a while: nobody knows whether it has done the call.
            self.roster.go_back(died_with(target, self.method.full_name))

    def _was_disturbed(self, index: int, replaced: list[WorkloadHandle]) -> bool:
        """Whether the error came because a peer died, so that the part can be made again; of others, nobody knows."""
        target = self.targets[index]
        if not replaced:
            return False
        if all(one.role != target.role for one in replaced):
            self.roster.go_back(died_with(replaced[0], self.method.full_name))
        self._check_may_repeat(target)
        return True

    def _check_may_repeat(self, target: WorkloadHandle) -> None:
        if not self.method.is_repeatable:
            self.roster.escalate(target.name, self.method.name)

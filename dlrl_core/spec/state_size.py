"""How many bytes a commit holds of a role, rank by rank, as it is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from dlrl_core.spec.config_value import kind_of
from dlrl_core.spec.frozen import Frozen

_From0 = Annotated[int, Field(strict=True, ge=0)]
_From1 = Annotated[int, Field(strict=True, ge=1)]


class StatePart(Frozen):
    """A part of the state that has the same size on each of these ranks."""

    size: _From0
    """Bytes on each rank."""
    first_rank: _From0 = 0
    ranks: _From1 | None = None
    """How many ranks from the first one on have it; None: all."""
    contents: _From1 | None = None
    """How many different contents these ranks have in turn: n, if each has what the n-th after it has. None: each rank
    has its own. A node keeps what its ranks have alike once."""

    def held_by(self, rank: int) -> bool:
        return self.first_rank <= rank and (self.ranks is None or rank < self.first_rank + self.ranks)

    def size_on(self, ranks: Iterable[int]) -> int:
        """Bytes on a node that has these ranks."""
        held = [rank - self.first_rank for rank in ranks if self.held_by(rank)]
        return self.size * len({rank % self.contents if self.contents else rank for rank in held})


class StateSize(Frozen):
    """The size of a role's committed state. Without parts it is not known, and the derivation says why."""

    parts: tuple[StatePart, ...] = ()
    derivation: str = ""
    """Where the figures come from, in a line."""

    @model_validator(mode="before")
    @classmethod
    def _from_bytes(cls, given: Any) -> Any:
        if type(given) is int:
            return {"parts": [{"size": given}], "derivation": "as the job says"}
        if isinstance(given, Mapping | StateSize):
            return given
        raise PydanticCustomError("predicate", "is {kind}; it must be a number of bytes", {"kind": kind_of(given)})

    @property
    def is_known(self) -> bool:
        return bool(self.parts)

    def size_on(self, ranks: Iterable[int]) -> int:
        """Bytes of one version on a node that has these ranks of the role; of a single rank, what it copies."""
        listed = list(ranks)
        return sum(part.size_on(listed) for part in self.parts)

"""The base of all models of the schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that a user may write for it in a file."""
        return list(cls.model_fields)

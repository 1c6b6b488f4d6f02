"""The base of all models of the schema, and what is wrong with a record of one."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class Frozen(BaseModel):
    """A frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that a user may write for it in a file."""
        return list(cls.model_fields)


def validation_problems(error: ValidationError) -> list[str]:
    """Pydantic's findings about a stored record; values are left out, they may be secret."""
    return [
        f"'{'.'.join(str(part) for part in item['loc']) or 'the job'}': {item['msg'][:1].lower()}{item['msg'][1:]}"
        for item in error.errors(include_input=False, include_url=False)
    ]

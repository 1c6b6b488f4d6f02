"""The schema number that every persisted thing carries, and the one sentence when it is too new."""

from __future__ import annotations

from dlrl_core.errors import SchemaError


def check_schema(found: int, reads_up_to: int, where: str) -> None:
    """Raises SchemaError for what a newer dlrl wrote. `where` names the file or document."""
    if found > reads_up_to:
        raise SchemaError(
            f"job context has schema {found}, this dlrl reads up to {reads_up_to}; resume with a newer dlrl ({where})"
        )

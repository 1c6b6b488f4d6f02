"""Text and data that people will read: free of secrets, and always storable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, JsonValue

from dlrl_core.context.redaction import redact


def shown_text(value: Any) -> Any:
    """A string without secrets and without lone surrogates, which paths of other encodings bring in."""
    return redact(_storable(value)) if isinstance(value, str) else value


def shown_data(value: Any) -> Any:
    """A mapping as JSON values without secrets. What JSON lacks becomes its text: no event is refused."""
    if not isinstance(value, Mapping):
        return value
    text = json.dumps(dict(value), default=str, ensure_ascii=False, skipkeys=True)
    return redact(json.loads(_storable(text), parse_constant=str))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


ShownText = Annotated[str, BeforeValidator(shown_text)]
ShownData = Annotated[dict[str, JsonValue], BeforeValidator(shown_data)]

"""Where the command writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160


def console(stream: IO[str] | None = None) -> Console:
    """A console on a stream, stdout unless said. Into a pipe it writes wide lines, so that tables stay whole."""
    from rich.console import Console

    stream = stream or sys.stdout
    is_pipe = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(file=stream, highlight=False, width=_PIPE_WIDTH if is_pipe else None)


def print_json(value: Any, stream: IO[str] | None = None) -> None:
    """One JSON value, without secrets, and always valid JSON."""
    from dlrl_core.context import redact

    print(json.dumps(redact(plain(value)), indent=2, allow_nan=False), file=stream or sys.stdout, flush=True)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: arrays become lists, NaN becomes 'NaN', anything else its text."""
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if callable(to_list := getattr(value, "tolist", None)):  # numpy and torch, which we never import
        return plain(to_list())
    return str(value)

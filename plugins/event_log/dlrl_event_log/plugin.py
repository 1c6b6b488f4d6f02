"""Registers the event sink 'event_log': each journal event becomes a line of JSON in the file DLRL_EVENT_LOG names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import EventSink

VARIABLE = "DLRL_EVENT_LOG"
_MODE = 0o600


@hookimpl
def dlrl_event_sinks() -> dict[str, EventSink]:
    return {"event_log": append} if os.environ.get(VARIABLE) else {}


def append(job: str, event: Mapping[str, Any]) -> None:
    """Append the event to the file, which only its owner can read. Raises OSError if that fails."""
    path = Path(os.environ[VARIABLE]).expanduser()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE), "w") as file:
        file.write(json.dumps({"job": job, **event}) + "\n")

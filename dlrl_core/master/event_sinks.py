"""EventSinks: each journal event of a job, given to the sinks that plugins register."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlrl_core.context import JournalEvent
    from dlrl_core.plugin.hookspecs import EventSink

_log = logging.getLogger("dlrl.events")
_LAST_EVENTS_S = 5.0


class EventSinks:
    """Calls every sink with every event, in order, in one thread. A sink that fails is reported once and kept."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._events: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._failed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="dlrl-event-sinks", daemon=True)
        self._thread.start()

    def add(self, events: Sequence[JournalEvent]) -> None:
        """Hand over events that are part of the record now; returns at once."""
        for event in events:
            self._events.put(event.model_dump(mode="json", exclude={"seq"}))

    def close(self) -> None:
        """Wait a few seconds until the sinks have what was handed over."""
        self._events.put(None)
        self._thread.join(_LAST_EVENTS_S)

    def _run(self) -> None:
        from dlrl_core.plugin import plugin_host

        sinks = plugin_host().event_sinks()
        while (event := self._events.get()) is not None:
            for name, sink in sinks.items():
                self._call(name, sink, event)

    def _call(self, name: str, sink: EventSink, event: Mapping[str, Any]) -> None:
        try:
            sink(self._job, event)
        except Exception as error:  # noqa: BLE001 - code of a plugin: it must not disturb the job
            if name not in self._failed:
                self._failed.add(name)
                _log.warning("event sink '%s' failed: %s: %s", name, type(error).__name__, error)

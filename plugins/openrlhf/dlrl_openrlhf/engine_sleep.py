"""vLLM's sleep: what OpenRLHF has awake of the engines, also when weights are given to them out of turn.

Engines that share devices with models sleep while those work, if '--vllm.enable_sleep' says so. New weights need the
old ones awake. An engine that took another's place sleeps, whatever the others do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WEIGHTS = "weights"
CACHE = "kv_cache"


class EngineSleep:
    """The parts of all engines that OpenRLHF's trainer wants awake now."""

    def __init__(self, engines: Sequence[Any], call: Callable[..., Any]) -> None:
        self._engines = engines
        self._call = call
        self._awake = {WEIGHTS, CACHE}

    def call(self, engines: Sequence[Any], method: str, *args: Any, **kwargs: Any) -> Any:
        """OpenRLHF's `batch_vllm_engine_call`. Noted before it is made: who takes a place meanwhile is to follow."""
        if method == "sleep":
            self._awake.clear()
        elif method == "wake_up":
            self._awake.update(kwargs.get("tags") or (WEIGHTS, CACHE))
        return self._call(engines, method, *args, **kwargs)

    @contextlib.contextmanager
    def weights_awake(self) -> Iterator[None]:
        """All engines can take weights in here; after it, they are as OpenRLHF has them.

        vLLM does nothing where a part is awake already. It puts none to sleep while another sleeps, so those that are
        to sleep wake up as a whole first.
        """
        self._call(self._engines, "wake_up", tags=[WEIGHTS])
        yield
        if CACHE in self._awake:
            self._call(self._engines, "wake_up")
        elif not self._awake:
            self._call(self._engines, "wake_up")
            self._call(self._engines, "sleep")

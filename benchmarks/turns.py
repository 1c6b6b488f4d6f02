"""Two programs that take turns: both are alive, and all but one are stopped.

A machine is slow for minutes and fast for minutes. Turns are shorter than that, so that all have the same of it.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time

import psutil

_END_S = 60.0


class Player:
    """A program with all processes that it has started."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT)
        self.began = time()
        self._pauses: list[tuple[float, float]] = []
        self._paused_at: float | None = None

    def play(self, turn_s: float | None = None) -> int | None:
        """Go on until the turn is over; the exit code, if it has ended."""
        if self._paused_at is not None:
            self._tell(signal.SIGCONT)
            self._pauses.append((self._paused_at, time()))
            self._paused_at = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(turn_s)
        return None

    def pause(self) -> None:
        self._tell(signal.SIGSTOP)
        self._paused_at = time()

    def played_s(self, start: float, end: float) -> float:
        """How much of that time was its own."""
        pauses = sum(max(0.0, min(end, until) - max(start, since)) for since, until in self._pauses)
        return end - start - pauses

    def end(self) -> None:
        """As with Ctrl-C, if it has not ended by itself; killed, it would leave shared memory behind."""
        self._tell(signal.SIGCONT)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._tell(signal.SIGSTOP)  # so that nobody starts another one meanwhile
        self._tell(signal.SIGKILL)
        self._process.wait()

    def _tell(self, what: signal.Signals) -> None:
        told: set[psutil.Process] = set()
        while new := self._processes() - told:  # they may start others until they have been told
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(what)
            told |= new

    def _processes(self) -> set[psutil.Process]:
        if self._process.poll() is not None:
            return set()
        root = psutil.Process(self._process.pid)
        return {root, *root.children(recursive=True)}


def take_turns(starts: Iterable[Callable[[], Player]], *, turn_s: float) -> tuple[list[Player], float]:
    """Run all to their ends. Returns when the first one had ended: from then on there were no turns."""
    players: list[Player] = []
    try:
        for player in _in_turn(starts, players):
            if player.play(turn_s) is not None:
                break
            player.pause()
        end = time()
        for one in sorted(players, key=lambda one: one is not player):
            if code := one.play():
                raise RuntimeError(f"it ended with {code}; the end of {one.log}: {one.log.read_text()[-4000:]}")
    finally:
        for one in players:
            one.end()
    return players, end


def _in_turn(starts: Iterable[Callable[[], Player]], players: list[Player]) -> Iterator[Player]:
    for start in starts:
        players.append(start())
        yield players[-1]
    yield from itertools.cycle(players)

"""DurableStorage: where the versions of one workload lie beyond its node. A folder and a URL have one each."""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from dlrl_core.workload.state_keeper import Commit
from dlrl_state.version_folder import Version

if TYPE_CHECKING:
    from dlrl_state.state_memory import StateMemory

Result = TypeVar("Result")


class CopyProgress:
    """What a copy tells while it runs, and is told: that it moves, and that it was given up."""

    def __init__(self) -> None:
        self.moved_at = time.monotonic()
        self.is_abandoned = False

    def moved(self) -> None:
        self.moved_at = time.monotonic()

    def check(self) -> None:
        """Raise OSError if the copy was given up."""
        if self.is_abandoned:
            raise OSError("it was given up")


class DurableStorage(abc.ABC):
    """The versions of one workload. All methods raise OSError, and may take as long as the storage does."""

    def __init__(self, place: str) -> None:
        self.place = place
        """The folder or URL, for messages."""

    @abc.abstractmethod
    def held(self) -> dict[str, Commit]:
        """The commits of all whole versions, by id."""

    @abc.abstractmethod
    def write(self, version: Version, progress: CopyProgress) -> None:
        """Copy a version, unless it is there; when this returns, it is safe. A copy that fails leaves nothing."""

    @abc.abstractmethod
    def bring(self, commit: Commit, memory: StateMemory) -> Version:
        """The version of a commit as files of this node, in `memory` if it has to be copied."""

    @abc.abstractmethod
    def remove(self, commit: Commit) -> None:
        """Remove the version of a commit, all of it at once for readers."""

    @abc.abstractmethod
    def sweep(self, before: int) -> None:
        """Remove what other processes left of copies of versions before that one. May run beside `write`."""

    @abc.abstractmethod
    def remove_all(self) -> None:
        """Remove the place with all that is below it."""


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What the call returns. Raises TimeoutError if it takes longer; its thread is then left to itself."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    thread = threading.Thread(target=run, name="dlrl-durable-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if not future.done():
        raise TimeoutError(f"no answer for {seconds:g} s")
    return future.result()

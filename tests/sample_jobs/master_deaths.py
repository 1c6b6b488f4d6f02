"""Jobs whose Master is killed at a moment that the test can find."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from dlrl_core import BaseTrainer, BaseWorkload


class Worker(BaseWorkload):
    def pid(self):
        return os.getpid()


class FreezesAWorker(BaseTrainer):
    """Comes to its end with a workload that will not say its last word, so that the end takes a while."""

    def init(self):
        self.pids = self.RG_ACTOR.pid()

    def fit(self):
        os.kill(self.pids[0], signal.SIGSTOP)
        return {"answer": 42, "padding": "0" * self.config.get("padding", 0)}


class RunsUntilTold(BaseTrainer):
    """Calls its workloads until a file is there."""

    def init(self):
        pass

    def fit(self):
        for _ in self.steps(100_000):
            pids = self.RG_ACTOR.pid()
            time.sleep(0.05)
            if Path(self.config.enough).exists():
                break
        return pids


class NeedsRankZero(BaseWorkload):
    """Rank 0 dies in its second constructor; the other rank then fails too, as one in a collective does."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        folder = Path(config.folder)
        time_of_rank = len(list(folder.glob(f"{self.rank}-*")))
        (folder / f"{self.rank}-{time_of_rank}").touch()
        if time_of_rank != 1:
            return
        if self.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        while not (folder / "0-1").exists():
            time.sleep(0.01)
        raise ConnectionError("connection closed by peer")

    def die_once(self):
        if self.rank == 0 and len(list(Path(self.config.folder).glob("0-*"))) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


class DiesOnce(BaseTrainer):
    def init(self):
        pass

    def fit(self):
        return len(self.RG_ACTOR.die_once())

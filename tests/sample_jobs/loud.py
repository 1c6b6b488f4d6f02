"""A job whose processes print, in colour too, and one of which dies."""

from __future__ import annotations

import os
import signal
import sys

from dlrl_core import BaseTrainer, BaseWorkload


class LoudActor(BaseWorkload):
    def work(self):
        print(f"\x1b[31mactor {self.rank} works\x1b[0m")
        print(f"actor {self.rank} complains", file=sys.stderr)


class Dies(BaseWorkload):
    def work(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Loud(BaseTrainer):
    def init(self):
        pass

    def fit(self):
        self.RG_ACTOR.work()
        self.RG_ROLLOUT.work()

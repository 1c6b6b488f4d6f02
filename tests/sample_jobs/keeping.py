"""A job whose only business is state: it is updated and committed until a file says that it is enough."""

from __future__ import annotations

import time
from pathlib import Path

from dlrl_core import BaseTrainer, trainer_invocation
from dlrl_core.errors import DlrlError
from sample_jobs.exact import Buffered


class Keeper(Buffered):
    """State in arrays; it also says where it is kept."""

    @trainer_invocation(changes_state=False)
    def applied_steps(self):
        return self.numbers.applied


class KeepingTrainer(BaseTrainer):
    """So many steps, or fewer if the file `enough` is there; returns the steps that each rank has applied."""

    def init(self):
        self.RG_ACTOR.init_model(7)

    def fit(self):
        for step in self.steps(self.config.get("steps", 2000)):
            self.RG_ACTOR.update(step, step)
            self.commit(step)
            if Path(self.config.enough).exists():
                break
            time.sleep(0.02)
        return self.RG_ACTOR.applied_steps()


class UnknownOptimizer(Keeper):
    """Its state can't be committed, as an adapter says of an optimizer that it does not know."""

    def capture_state(self):
        raise DlrlError("a commit can't hold the state of optimizer 'Mine'")

    @trainer_invocation()
    def update(self, step, value):
        raise AssertionError("training has started")

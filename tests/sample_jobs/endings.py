"""Jobs that end in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import ray

from dlrl_core import BaseTrainer, BaseWorkload


class Worker(BaseWorkload):
    def work(self, value=0):
        return value + 1

    def pid(self):
        return os.getpid()

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def raise_error(self):
        raise ValueError("the data is bad")

    def unsendable(self):
        return threading.Lock()

    def start_child(self):
        """A process of its own that would outlive this one if nobody ended it."""
        return subprocess.Popen(["sleep", "600"]).pid

    def sleep(self, seconds):
        time.sleep(seconds)


class RefusesToStart(BaseWorkload):
    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        if self.rank == 1:
            raise OSError("no weights at /nowhere")


class DiesAtStart(BaseWorkload):
    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        os.kill(os.getpid(), signal.SIGKILL)


class _Trainer(BaseTrainer):
    def init(self):
        pass

    def mark(self):
        """Tell a test in another process that training has begun."""
        if self.config.get("mark"):
            Path(self.config.mark).write_text(str(self.RG_ACTOR.start_child()[0]))


class Finishes(_Trainer):
    def fit(self):
        self.mark()
        for _ in self.steps(3):
            self.RG_ACTOR.work()
        return {"job": self.config.get("word"), "pids": self.RG_ACTOR.pid()}


class Raises(_Trainer):
    def fit(self):
        for step in self.steps(5):
            if step == 2:
                raise RuntimeError("the loss is not a number")


class MeetsError(_Trainer):
    def fit(self):
        self.RG_ACTOR.raise_error()


class MeetsErrorThroughHandle(_Trainer):
    """As MeetsError, with Ray's own ray.get."""

    def fit(self):
        ray.get(self.actors[0].raise_error.remote())


class MeetsUnsendable(_Trainer):
    def fit(self):
        self.RG_ACTOR.unsendable()


class LosesWorkload(_Trainer):
    def fit(self):
        self.RG_ACTOR.die()


class LosesIdleWorkload(_Trainer):
    """A workload dies between calls; the trainer itself never notices."""

    def fit(self):
        os.kill(self.RG_ACTOR.pid()[0], signal.SIGKILL)
        time.sleep(600)


class Dies(_Trainer):
    def fit(self):
        os.kill(os.getpid(), signal.SIGKILL)


class FailsInInit(_Trainer):
    def init(self):
        raise KeyError("tokenizer")

    def fit(self):
        return None


class RunsForever(_Trainer):
    def fit(self):
        self.mark()
        step = 0
        while True:
            self.log(step=step)
            self.RG_ACTOR.sleep(0.2)
            step += 1


class SlowSteps(_Trainer):
    def fit(self):
        for step in self.steps(1000):
            self.RG_ACTOR.sleep(0.05)
            self.log(reward=step / 10)


def helper_function():
    """Not a class."""

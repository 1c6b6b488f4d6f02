"""Ranks that hold connections to each other: when one dies, the others raise before anybody hears of the death."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import ray

from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation
from sample_jobs.mishaps import is_first_time


class Linked(BaseWorkload):
    """One of two ranks with a socket between them, in place of a process group."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.count = 0

    def connect(self):
        where = (self.torch_master_addr, self.torch_master_port)
        if self.rank == 0:
            with socket.create_server(where) as server:
                self.peer, _ = server.accept()
            return
        deadline = time.monotonic() + 30
        while True:
            try:
                self.peer = socket.create_connection(where)
                return
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def exchange(self):
        """Both ranks have come here; raises if the other one is gone."""
        self.peer.sendall(b".")
        if self.peer.recv(1) != b".":
            raise ConnectionError("connection closed by peer")

    def die_at(self, place: str):
        if self.rank == 0 and self.config.dies_in == place and is_first_time(self.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)

    def update(self, step):
        if step == 2:
            self.die_at("update")
        self.exchange()
        self.count += 1
        return self.count

    def save_state(self, path):
        if self.count == 3:
            self.die_at("save_state")
        self.exchange()
        (Path(path) / "count").write_text(str(self.count))

    def load_state(self, path):
        self.count = int((Path(path) / "count").read_text())


class Sender(BaseWorkload):
    """Gives something to a rollout, and raises an error of its own if that fails."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.count = 0

    def send(self, step, engine):
        self.count += 1
        try:
            ray.get(engine.take.remote(step))
        except Exception:
            raise RuntimeError("the broadcast failed") from None

    def counted(self):
        return self.count

    def join(self, batches):
        return sorted(batches)

    async def add_later(self):
        """Begun before a death; must not be felt after training went back."""
        await asyncio.sleep(self.config.late_s)
        self.count += 100

    def save_state(self, path):
        (Path(path) / "count").write_text(str(self.count))

    def load_state(self, path):
        self.count = int((Path(path) / "count").read_text())


class Engine(BaseWorkload):
    def take(self, step):
        self._die_once(step)

    @trainer_invocation(blocking=False)
    def generate(self, step):
        self._die_once(step)
        return [10 * step + self.rank]

    def _die_once(self, step):
        if step == 2 and self.rank == 1 and is_first_time(self.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)


class LoggedTrainer(BaseTrainer):
    """Writes down how often `fit` was entered."""

    def init(self):
        pass

    def fit(self):
        with Path(self.config.log).open("a") as log:
            log.write("fit\n")
        return self.train()


class Updates(LoggedTrainer):
    def init(self):
        self.RG_ACTOR.connect()

    def train(self):
        for step in self.steps(5):
            counts = self.RG_ACTOR.update(step)
            self.commit(step)
        return counts


class Broadcasts(LoggedTrainer):
    """The actor calls an engine that dies; the trainer calls the actor through its group or its handle."""

    is_again = False

    def train(self):
        for step in self.steps(5):
            if step == 2 and not self.is_again:
                self.is_again = True
                self.RG_ACTOR.add_later.options(blocking=False)()
            if self.config.by_handle:
                ray.get(self.actors[0].send.remote(step, self.rollouts[1]))
            else:
                self.RG_ACTOR.send(step, self.rollouts[1])
            if self.config.commits:
                self.commit(step)
        time.sleep(self.config.late_s)
        return self.RG_ACTOR.counted()


class Joins(LoggedTrainer):
    """Results of two rollouts go to one actor by reference."""

    def train(self):
        return [self.RG_ACTOR.join(self.RG_ROLLOUT.generate(step))[0] for step in self.steps(4)]

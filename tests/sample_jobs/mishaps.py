"""Jobs in which something goes wrong in a way of its own."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from pathlib import Path

import ray

from dlrl_core import BaseTrainer, BaseWorkload, trainer_invocation
from dlrl_core.roles import MASTER, namespace_of
from dlrl_core.trainer import trainer_host
from dlrl_core.workload.actors import MasterHandle


def is_first_time(mark: str) -> bool:
    """Whether nobody has been here before; True once."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Counter(BaseWorkload):
    """Counts what it is asked; the file it writes to outlives its process."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.count = 0

    def add(self, step):
        self.count += 1
        return self.count

    def die_once(self, step):
        if step == 2 and self.rank == 0 and is_first_time(self.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    def die_always(self, step):
        os.kill(os.getpid(), signal.SIGKILL)

    def raise_at_two(self, step):
        if step == 2:
            raise ValueError("the data is bad")

    def raise_once(self, step):
        if step == 2 and is_first_time(self.config.mark):
            raise ConnectionError("the network was away")

    @trainer_invocation(replay=False)
    def charge(self, step):
        """Must not be done twice for the same step by itself."""
        with Path(self.config.ledger).open("a") as ledger:
            ledger.write(f"{step}\n")
        if step == 2 and is_first_time(self.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)

    @trainer_invocation(blocking=False)
    def echo(self, batch):
        if self.rank == 1 and is_first_time(self.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    def pid(self):
        return os.getpid()


class Committed(Counter):
    def save_state(self, path):
        (Path(path) / "count").write_text(str(self.count))

    def load_state(self, path):
        self.count = int((Path(path) / "count").read_text())


class NoMemoryOnce(Committed):
    """After a death there is no memory for the next process, once for each rank."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        if Path(config.mark).exists() and is_first_time(f"{config.mark}-{self.rank}"):
            raise MemoryError("CUDA out of memory")


class NoMemoryAgain(Committed):
    """After a death there is never memory for the next process."""

    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        if Path(config.mark).exists():
            raise MemoryError("CUDA out of memory")


class Steps(BaseTrainer):
    """Calls the method that the config names, and commits unless told not to."""

    def init(self):
        log = Path(self.config.log)
        log.write_text(log.read_text() + "init\n" if log.exists() else "init\n")

    def fit(self):
        log = Path(self.config.log)
        log.write_text(log.read_text() + "fit\n")
        for step in self.steps(self.config.get("steps", 4)):
            getattr(self.RG_ACTOR, self.config.method)(step)
            counts = self.RG_ACTOR.add(step)
            time.sleep(self.config.get("pause_s", 0))
            if self.config.get("commits", True):
                self.commit(step, counts=counts)
        return {"counts": counts, "progress": dict(self.progress), "step": self.committed_step}


class DropsReferences(Steps):
    """Does not await the call that the config names."""

    def fit(self):
        for step in self.steps(4):
            getattr(self.RG_ACTOR, self.config.method).options(blocking=False)(step)
            self.commit(step)


class ChangesBatches(Steps):
    def fit(self):
        batch = [[1], [2], [3], [4]]
        call = self.RG_ACTOR.echo(batch)
        for item in batch:
            item.append("changed")
        return call.get()


class FreezesOnce(Steps):
    """Its process is stopped at the third step, and nothing lets it go on."""

    def fit(self):
        with Path(self.config.log).open("a") as log:
            log.write("fit\n")
        for step in self.steps(4):
            counts = self.RG_ACTOR.add(step)
            if step == 2 and is_first_time(self.config.mark):
                self._until_recorded()
                os.kill(os.getpid(), signal.SIGSTOP)
            self.commit(step)
        return counts

    def _until_recorded(self):
        """Wait until the Master knows of a commit: without one, it would restart the whole job."""
        master = MasterHandle(namespace=namespace_of("freezes"), name=MASTER)
        while not ray.get(master.status.remote())["progress"]["committed_step"]:
            time.sleep(0.02)


class WaitsForAThread(Steps):
    """A thread makes the calls; the main loop waits for what it puts into a queue."""

    def init(self):
        super().init()
        trainer_host._LEAVE_S = 1.0

    def fit(self):
        with Path(self.config.log).open("a") as log:
            log.write("fit\n")
        asked, made = queue.Queue(), queue.Queue()
        threading.Thread(target=self.work, args=(asked, made), daemon=True).start()
        for step in self.steps(4):
            asked.put(step)
            counts = made.get()
            self.commit(step)
        return counts

    def work(self, asked, made):
        while True:
            step = asked.get()
            self.RG_ACTOR.die_once(step)
            made.put(self.RG_ACTOR.add(step))

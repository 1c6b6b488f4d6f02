"""How each kind of fault is carried out, how it is known to have struck, and how it is taken back.

`begin` strikes and returns when that is seen. `end` takes the fault back: those with `seconds` after that time, the
others as soon as what they are for was seen. `undo` leaves nothing of it, whatever went wrong; it may come twice.
"""

from __future__ import annotations

import abc
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import ray
from checks import is_running, wait_until

from dlrl_core.scheduler.workload_launcher import find_actor
from soak.fault_plan import Kind, Planned, Struck, Target, chosen
from soak.wall_clock_stand_in import DAY_S, WallClockStandIn
from soak.watched_job import LIMIT_S, Mark, Place, WatchedJob

if TYPE_CHECKING:
    from redis_server import RedisServer

    from soak.grounds import Ground

_SEEN_S = 30.0


class Strike(abc.ABC):
    """One planned fault."""

    is_timed = True
    """It ends after its `seconds`, and the job is not asked before."""

    def __init__(self, planned: Planned, job: WatchedJob, ground: Ground, before: Mark) -> None:
        self.planned = planned
        self.job = job
        self.ground = ground
        self.before = before
        """How far the job was before this group of faults."""
        self.name = ""
        """Of what it hit."""
        self.began_at = 0.0
        self.undone: Callable[[], object] = lambda: None
        """What takes it back, from the moment when there is something to take back."""

    @abc.abstractmethod
    def begin(self) -> None: ...

    def end(self) -> None:
        self.undo()

    def undo(self) -> None:
        """Leave nothing of the fault but what it has done."""
        undone, self.undone = self.undone, lambda: None
        undone()

    def freeze(self, pid: int) -> None:
        """SIGSTOP, until it is undone; returns when the process stands still."""
        self.undone = lambda: go_on(pid)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, f"{pid} stands still", _SEEN_S)

    def struck(self) -> Struck:
        planned = self.planned
        return Struck(kind=planned.kind, target=planned.target, moment=planned.moment, name=self.name)


class OfProcess(Strike):
    """Of one process of the job: the one that chance chooses of those that live at the moment."""

    place: Place | None = None

    def choose(self) -> Place:
        target = self.planned.target
        living = wait_until(lambda: self.job.processes(target), f"a {target} lives", LIMIT_S)
        self.name = chosen(self.planned.choice, sorted(living))
        self.place = living[self.name]
        return self.place


class KillProcess(OfProcess):
    def begin(self) -> None:
        killed = wait_until(self._killed, f"a {self.planned.target} could be killed", LIMIT_S)
        wait_until(lambda: not is_running(killed.pid), f"'{self.name}' is gone", _SEEN_S)

    def _killed(self) -> Place | None:
        place = self.choose()
        try:
            os.kill(place.pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # it has just ended
        return place


class FreezeProcess(OfProcess):
    def begin(self) -> None:
        self.freeze(self.choose().pid)


class FreezeUntilDead(FreezeProcess):
    """Chance decides whether it goes on as soon as it was declared dead, or when another one is ready."""

    is_timed = False

    def begin(self) -> None:
        self.restarts = {one["name"]: one["restarts"] for one in self.job.view()["workloads"]}
        super().begin()

    def end(self) -> None:
        assert self.place is not None
        old = self.place.pid
        wait_until(lambda: self._record()["restarts"] > self.restarts[self.name], f"'{self.name}' is given up", LIMIT_S)
        if self.planned.seconds > 1.3:
            wait_until(lambda: self._has_successor(old), f"another process is ready as '{self.name}'", LIMIT_S)
        self.undo()
        wait_until(lambda: not is_running(old), f"the old process of '{self.name}' has ended", LIMIT_S)

    def _record(self) -> dict[str, Any]:
        return next(one for one in self.job.view()["workloads"] if one["name"] == self.name)

    def _has_successor(self, old: int) -> bool:
        return bool(self._record()["state"] == "ready" and self._record()["pid"] != old)


class StepClock(OfProcess):
    def begin(self) -> None:
        self.choose()
        told = self.ground.folder / f"clock-{self.job.name}-{self.name}-{time.monotonic_ns()}"
        step_s = DAY_S if self.planned.choice < 0.5 else -DAY_S
        fault = WallClockStandIn(step_s=step_s, told=str(told))
        actor = find_actor(self.job.name, self.name)
        assert actor is not None, f"'{self.name}' is gone"
        ray.get(actor.inject.remote(fault), timeout=_SEEN_S)
        text = wait_until(lambda: told.exists() and told.read_text(), "the clock is stepped", _SEEN_S)
        assert abs(float(text) - time.time() - step_s) < DAY_S / 100


class FreezeRaylet(Strike):
    """Of any node: shorter than its health checks allow."""

    def begin(self) -> None:
        raylets = self.ground.raylets()
        node = chosen(self.planned.choice, sorted(raylets))
        self.name, self.process = node[:8], raylets[node]
        self.freeze(self.process.pid)

    def end(self) -> None:
        super().end()
        assert self.process.is_running()


class LoseNode(Strike):
    """A node on which something of the job is dies with its memory; or its raylet stands still until it is given up."""

    is_timed = False

    def begin(self) -> None:
        hosts = self.ground.nodes_of(self.job)
        ways = sorted((what, node) for node, here in hosts.items() for what in here)
        whats = sorted({what for what, _ in ways})  # so that the trainer and the Master are hit as often as workloads
        what = chosen(self.planned.choice, whats)
        self.node = node = chosen(self.planned.choice * len(whats) % 1.0, [node for one, node in ways if one == what])
        self.name = f"{node[:8]} with {' and '.join(sorted(hosts[node]))}"
        self.process = self.ground.raylets()[node]
        if self.planned.kind is Kind.KILL:
            self.ground.kill_node(node)
        else:
            self.freeze(self.process.pid)

    def end(self) -> None:
        if self.planned.kind is Kind.KILL:
            return
        wait_until(lambda: self.node not in self.ground.raylets(), "Ray gives the node up", LIMIT_S)
        if self.planned.seconds > 0.8:
            self.job.until_training_goes_on(self.job.mark())
        self.undo()
        wait_until(lambda: not is_running(self.process.pid), "the raylet ends", LIMIT_S)


class LockedFile(Strike):
    """Another process of the machine holds the SQLite store's lock: what a slow disk or a backup does."""

    is_timed = False

    def begin(self) -> None:
        path = self.ground.store_file()
        self.name = path.name
        connection = sqlite3.connect(path, isolation_level=None, timeout=_SEEN_S, check_same_thread=False)
        self.undone = connection.close
        connection.execute("BEGIN EXCLUSIVE")
        self.began_at = time.monotonic()

    def end(self) -> None:
        wait_until(self.job.is_degraded, "the Master can't write", LIMIT_S)
        time.sleep(max(0.0, self.began_at + self.planned.seconds - time.monotonic()))
        self.undo()
        self.job.until_healed()


class FullStoreDisk(Strike):
    """No byte is free where the SQLite store is, and its log can't be written over."""

    is_timed = False

    def begin(self) -> None:
        self.disk = self.ground.disk(Target.STORE_DISK)
        self.name, self.undone = self.disk.folder.name, self.disk.empty
        self._fill()

    def _fill(self) -> bool:
        connection = sqlite3.connect(self.ground.store_file(), timeout=0.1)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log has room that it would use again
        except sqlite3.OperationalError:
            pass
        finally:
            connection.close()
        self.disk.fill()
        return self.disk.is_full

    def end(self) -> None:
        wait_until(lambda: self._fill() and self.job.is_degraded(), "the Master can't write", LIMIT_S)
        self.undo()
        self.job.until_healed()


class FullMemory(Strike):
    """No byte is free where committed state is kept, for a while."""

    def begin(self) -> None:
        disk = self.ground.disk(Target.MEMORY)
        self.name, self.undone = disk.folder.name, disk.empty
        wait_until(lambda: disk.fill() or disk.is_full, "no byte is free", _SEEN_S)


class StalledServer(Strike):
    """A Redis server stands still; its connections stay open."""

    def server(self) -> RedisServer:
        return self.ground.server(self.planned.target)

    def begin(self) -> None:
        self.name = str(self.server().port)
        self.job.places()
        self.is_timed = self.planned.target is not Target.STORE
        self.ground.has_gcs, self.undone = not self.is_timed, self._resume
        self.server().pause()
        self.began_at = time.monotonic()

    def end(self) -> None:
        if not self.is_timed:  # a command has a timeout of seconds
            wait_until(self.job.is_degraded, "the Master can't write", LIMIT_S)
        self.undo()
        if not self.is_timed:
            self.job.until_healed()

    def _resume(self) -> None:
        self.server().resume()
        self.ground.has_gcs = True


class GcsAway(Strike):
    """The GCS is killed and started again, or stands still for a while."""

    def begin(self) -> None:
        self.job.places()  # to be known while there is no GCS
        gcs = self.ground.cluster().gcs()
        self.name, self.pid = gcs.name(), gcs.pid
        self.ground.has_gcs = False
        if self.planned.kind is Kind.KILL:
            self.ground.cluster().kill_gcs()
            assert not is_running(gcs.pid)
        else:
            self.freeze(gcs.pid)
        self.undone = self._bring_back

    def _bring_back(self) -> None:
        if self.planned.kind is Kind.KILL:
            self.ground.cluster().start_gcs()
        else:
            go_on(self.pid)
        self.ground.has_gcs = True


def go_on(pid: int) -> None:
    """SIGCONT, unless it has ended."""
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return


_STRIKES: dict[tuple[Kind, Target], type[Strike]] = {
    (Kind.FREEZE_UNTIL_DEAD, Target.WORKLOAD): FreezeUntilDead,
    (Kind.FREEZE, Target.RAYLET): FreezeRaylet,
    (Kind.FREEZE_UNTIL_DEAD, Target.RAYLET): LoseNode,
    (Kind.KILL, Target.NODE): LoseNode,
    (Kind.FULL, Target.STORE_DISK): FullStoreDisk,
    (Kind.FULL, Target.MEMORY): FullMemory,
    (Kind.STALL, Target.GCS_TABLES): StalledServer,
    (Kind.KILL, Target.GCS): GcsAway,
    (Kind.FREEZE, Target.GCS): GcsAway,
}
_OF_PROCESSES: dict[Kind, type[Strike]] = {Kind.KILL: KillProcess, Kind.FREEZE: FreezeProcess, Kind.CLOCK: StepClock}


def strike_of(planned: Planned, job: WatchedJob, ground: Ground, before: Mark) -> Strike:
    """The way to carry out this fault."""
    if planned.name == (Kind.STALL, Target.STORE):
        make: type[Strike] = StalledServer if ground.has_servers else LockedFile
    else:
        make = _STRIKES.get(planned.name) or _OF_PROCESSES[planned.kind]
    return make(planned, job, ground, before)

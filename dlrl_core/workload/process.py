"""A process of a job: its environment, devices and ports, and its end together with its node or its parent."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from dlrl_core.context.process_report import ProcessReport, WorkloadState
from dlrl_core.errors import ClusterError
from dlrl_core.roles import RoleType

AT_PROCESS_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "RAY_")
"""Prefixes of variables that are read when a process starts; set later, they would have no effect."""

DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "ASCEND_RT_VISIBLE_DEVICES",
)
"""The variables by which Ray limits the devices of a process; which one depends on the node's vendor."""

_TRACKER = "multiprocessing.resource_tracker"
_PORTS = range(20_000, 30_000)
"""Below the range from which the kernel assigns ports, so that it assigns none of these."""
_LOOK_S = 1.0
_GOES_S = 5.0
_KILLED_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ProcessSetup:
    """Environment, import path and plugins of a process."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    python_path: Sequence[str] = ()
    plugins: str | None = None
    framework: str | None = None

    def start_env(self) -> dict[str, str]:
        """The part of `env` that must be set when the process starts, without secrets, since Ray shows it."""
        from dlrl_core.context import looks_secret

        early = {key: value for key, value in self.env.items() if key.startswith(AT_PROCESS_START)}
        return {key: value for key, value in early.items() if not looks_secret(key)}

    def set_environment(self) -> None:
        """Set variables and import path; called first. DLRL_MEMORY is the node's, so the job's value is not used."""
        os.environ.update({name: value for name, value in self.env.items() if name != "DLRL_MEMORY"})
        given_env.update(self.env)
        sys.path.extend(path for path in self.python_path if path not in sys.path)
        if self.plugins is not None:
            os.environ["DLRL_PLUGINS"] = self.plugins

    def prepare_framework(self, role: RoleType | None) -> None:
        """Let the framework's adapter prepare the process, before a class of the user or the framework is imported.

        Role None is the trainer. A job without a framework loads no plugins here.
        """
        if self.framework is None:
            return
        from dlrl_core.plugin import plugin_host

        plugin_host().framework(self.framework).prepare_process(role)


given_env: dict[str, str] = {}
"""The variables that the job has set in this process; for adapters whose framework starts processes of its own."""


def report_of_process(
    *,
    name: str,
    run_id: str,
    incarnation: int,
    state: WorkloadState,
    device_ids: tuple[str, ...] = (),
    offered_port: int | None = None,
    call: tuple[str, float] | None = None,
    calls_done: int = 0,
) -> ProcessReport:
    """The report of this process; `call` is the running method and when it began, by the monotonic clock."""
    import psutil
    import ray

    context = ray.get_runtime_context()
    method, since = call or (None, None)
    return ProcessReport(
        name=name,
        run_id=run_id,
        incarnation=incarnation,
        node_id=context.get_node_id(),
        address=ray.util.get_node_ip_address(),
        pid=os.getpid(),
        started=started_at(os.getpid()),
        actor_id=context.get_actor_id() or "",
        device_ids=device_ids,
        offered_port=offered_port,
        state=state,
        call=method,
        call_s=None if since is None else time.monotonic() - since,
        calls_done=calls_done,
        memory_bytes=psutil.Process().memory_info().rss,
        sent_at=time.time(),
    )


def push_reports(master: Any, report: Callable[[], ProcessReport], ended: threading.Event, period_s: float) -> None:
    """Report to the Master again and again. If it answers that this process was replaced, the process ends."""
    import ray

    answers: deque[Any] = deque(maxlen=10)
    while not ended.wait(period_s):
        with contextlib.suppress(Exception):  # the Master may be restarting; the next report reaches it
            if answers and ray.wait([answers[0]], timeout=0)[0] and ray.get(answers.popleft()) is False:
                end_replaced(f"workload '{report().name}'")
        with contextlib.suppress(Exception):
            answers.append(master.report.remote(report()))


def check_run(report: ProcessReport, run_id: str) -> None:
    """Raise ClusterError if the process is left from an earlier run of the job whose Master is gone."""
    if report.run_id != run_id:
        raise ClusterError(
            f"process '{report.name}' (pid {report.pid} at {report.address}) is left from an earlier run of this job; "
            "dlrl doctor tells how to end it"
        )


class PortClaim:
    """A free port that no other workload on this node is offered as long as this process lives.

    A framework binds it much later. Until then it is claimed by a socket in Linux's abstract namespace, which is named
    after the port and does not occupy it; both are visible in the same network namespace.
    """

    def __init__(self) -> None:
        start = int.from_bytes(os.urandom(2), "big") % len(_PORTS)
        for offset in range(len(_PORTS)):
            self.port = _PORTS[(start + offset) % len(_PORTS)]
            if _is_free(self.port) and self._claim():
                return
        raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1} on this node")

    def leave(self) -> None:
        self._name.close()

    def _claim(self) -> bool:
        self._name = socket.socket(socket.AF_UNIX)
        if not sys.platform.startswith("linux"):
            return True
        try:
            self._name.bind(f"\0dlrl-port-{self.port}")
        except OSError:
            self._name.close()
            return False
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def thread_stacks() -> str:
    """The stacks of all threads of this process, with the threads' names."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread '{names.get(ident, ident)}':\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


at_end: list[Callable[[], None]] = []
"""Called when this process is to end, after the processes that it started; for what would be left of them."""


def end_children() -> None:
    """Kill all processes that this one started, except Python's resource trackers, and call `at_end`.

    The trackers remove the shared memory that the others leave, and then end by themselves.
    """
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            if _TRACKER not in " ".join(child.cmdline()):
                child.kill()
        except psutil.NoSuchProcess:
            continue
    call_at_end()


def end_replaced(what: str) -> NoReturn:
    """End this process and its children: it was declared dead, lives on, and another one does its work."""
    print(f"dlrl: {what} was replaced while it was out of reach; this process ends", file=sys.stderr, flush=True)
    try:
        end_children()
    finally:
        os._exit(1)


def call_at_end() -> None:
    """Make the calls of `at_end`; what one raises does not keep others from being made."""
    for call in at_end:
        try:
            call()
        except Exception:  # noqa: BLE001 - calls of adapters may raise anything, and this process ends
            traceback.print_exc()


def started_at(pid: int) -> int:
    """When a process of this machine started, in the kernel's ticks since it booted; 0 if the kernel does not tell."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def end_predecessor(process: tuple[int, int] | None) -> None:
    """Wait until an earlier process under this raylet is gone, and its memory free. One that stays is killed."""
    import psutil

    pid, started = process or (os.getpid(), 0)
    with contextlib.suppress(psutil.NoSuchProcess):
        if pid == os.getpid() or started_at(pid) != started or (old := psutil.Process(pid)).ppid() != os.getppid():
            return  # another process has its number
        is_stopped = old.status() == psutil.STATUS_STOPPED  # it can't end by itself
        if psutil.wait_procs([old], timeout=0 if is_stopped else _GOES_S)[1]:
            old.kill()
        if psutil.wait_procs([old], timeout=_KILLED_S)[1]:
            raise ClusterError(f"its old process, pid {pid}, has not ended {_KILLED_S:g} s after it was killed")


def end_with_node() -> None:
    """End this process at once when its raylet is gone, because a replacement does its work by then.

    Ray's own check may take much longer.
    """
    raylet = os.getppid()

    def wait() -> None:
        while os.getppid() == raylet:
            time.sleep(_LOOK_S)

    exit_after(wait)


def exit_after(wait: Callable[[], Any]) -> None:
    """End this process when `wait` has returned, in a thread."""

    def watch() -> None:
        wait()
        call_at_end()
        os._exit(1)

    threading.Thread(target=watch, name="dlrl-orphan", daemon=True).start()


def own_devices(device_type: str) -> tuple[str, ...]:
    """The ids of the devices that Ray gave this process, such as ('3',)."""
    import ray

    return tuple(ray.get_runtime_context().get_accelerator_ids().get(device_type, ()))


def show_devices(device_type: str, ids: Sequence[str]) -> None:
    """Let libraries in this process see exactly these devices, in this order; call it before they are imported.

    Does nothing for CPUs, and where the user told Ray not to set the variables.
    """
    from ray._private.accelerators import get_accelerator_manager_for_resource

    # Ray knows each vendor's variable and its syntax.
    manager = None if device_type == "CPU" else get_accelerator_manager_for_resource(device_type)
    if manager is not None:
        manager.set_current_process_visible_accelerator_ids(list(ids))


def all_devices_env() -> dict[str, str]:
    """The variables that make Ray, and dlrl, leave all devices of the node visible to a process."""
    return {f"RAY_EXPERIMENTAL_NOSET_{name}": "1" for name in DEVICE_VARIABLES}

"""What every process of a job does before the user's classes are imported in it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlrl_core.errors import ClusterError
from dlrl_core.roles import RoleType

AT_PROCESS_START = (
    "LD_",
    "PYTHON",
    "MALLOC_",
    "GLIBC_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "RAY_",
)
"""Prefixes of variables that a process reads when it starts: set later they would have no effect."""

_TRACKER = "multiprocessing.resource_tracker"
_PORTS = range(20_000, 30_000)
"""Below the range from which the kernel hands out ports, so that nobody gets one of ours by chance."""


@dataclass(frozen=True, kw_only=True)
class ProcessSetup:
    """How a process of the job is made ready: environment, import path, plugins."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    python_path: Sequence[str] = ()
    plugins: str | None = None
    framework: str | None = None

    def start_env(self) -> dict[str, str]:
        """The part of `env` that must be there when the process starts. Ray shows it in its state: no secrets in it."""
        from dlrl_core.context import looks_secret

        early = {key: value for key, value in self.env.items() if key.startswith(AT_PROCESS_START)}
        return {key: value for key, value in early.items() if not looks_secret(key)}

    def set_environment(self) -> None:
        """First of all: variables and import path. Where state is kept is the node's to say, not the job's."""
        os.environ.update({name: value for name, value in self.env.items() if name != "DLRL_MEMORY"})
        given_env.update(self.env)
        sys.path.extend(path for path in self.python_path if path not in sys.path)
        if self.plugins is not None:
            os.environ["DLRL_PLUGINS"] = self.plugins

    def prepare_framework(self, role: RoleType | None) -> None:
        """Then the framework's adapter, before any class of the user or the framework is imported.

        Plugins load here as they do in the driver; a job without a framework has none to wait for. Role None is
        the trainer.
        """
        if self.framework is None:
            return
        from dlrl_core.plugin import plugin_host

        plugin_host().framework(self.framework).prepare_process(role)


given_env: dict[str, str] = {}
"""What the job has added to this process's environment; for adapters whose framework starts processes of its own."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Where a process of the job came up; rank 0 of a role also offers a port to meet at."""

    name: str
    run_id: str
    node_id: str
    address: str
    pid: int
    actor_id: str
    offered_port: int | None
    device_ids: tuple[str, ...] = ()


def host_facts(name: str, run_id: str, offered_port: int | None = None, device_ids: tuple[str, ...] = ()) -> HostFacts:
    """The facts of this process."""
    import ray

    context = ray.get_runtime_context()
    return HostFacts(
        name=name,
        run_id=run_id,
        node_id=context.get_node_id(),
        address=ray.util.get_node_ip_address(),
        pid=os.getpid(),
        actor_id=context.get_actor_id() or "",
        offered_port=offered_port,
        device_ids=device_ids,
    )


def check_run(facts: HostFacts, run_id: str) -> None:
    """A process of that name may be left from an earlier run whose Master is gone: it must not be taken for ours."""
    if facts.run_id != run_id:
        raise ClusterError(
            f"process '{facts.name}' (pid {facts.pid} at {facts.address}) is left from an earlier run of this job; "
            "dlrl doctor tells how to end it"
        )


def free_port() -> int:
    """A port that nobody listens on, on this node, now."""
    claim = PortClaim()
    claim.leave()
    return claim.port


class PortClaim:
    """A free port that no other workload on this node is offered as long as this process lives.

    Whoever it is for binds it much later, when a framework is imported. Until then it is held by a name that has
    nothing to do with the port itself: a socket in Linux's abstract namespace, which is as wide as that of ports.
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
    """The stacks of all threads of this process, named."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread '{names.get(ident, ident)}':\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


def end_children() -> None:
    """Kill all processes that this one started: they must not outlive it.

    But for those of Python's own that remove what shared memory the others leave, and then end by themselves.
    """
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            if _TRACKER not in " ".join(child.cmdline()):
                child.kill()
        except psutil.NoSuchProcess:
            continue

"""What dlrl needs of this machine: free ports and shared memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning

_SHM = Path("/dev/shm")
_KERNEL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LAST_PORT = 29_999
_MIB = 1024**2
_SHM_NEEDED = 128 * _MIB
"""The object store of one node of an embedded local Ray has 96 MiB."""
_SHM_WISHED = 1024 * _MIB


def check(_: DoctorRequest) -> Iterator[Verdict]:
    yield _ports()
    yield from _kernel_ports()
    yield _shared_memory()


def _ports() -> Verdict:
    from dlrl_core.workload.process import PortClaim

    try:
        claim = PortClaim()
        claim.leave()
        return ok("ports", f"{claim.port} is free, of 20000 to {_LAST_PORT}, from which workloads get theirs")
    except OSError as error:
        return problem("ports", str(error), "end what listens there; see: ss -ltnp")


def _kernel_ports() -> Iterator[Verdict]:
    if not _KERNEL_PORTS.exists():
        return
    first = int(_KERNEL_PORTS.read_text().split()[0])
    if first <= _LAST_PORT:
        yield warning(
            "ports",
            f"the kernel hands out ports from {first} on, so that it may give away one found free for a workload",
            f"run as root: sysctl -w net.ipv4.ip_local_port_range='{_LAST_PORT + 1} 60999'",
        )


def _shared_memory() -> Verdict:
    if not _SHM.is_dir():
        return problem("shared memory", f"there is no '{_SHM}'", "mount a tmpfs there: Ray keeps objects in it")
    usage = shutil.disk_usage(_SHM)
    seen = f"'{_SHM}' has {usage.free // _MIB} MiB free of {usage.total // _MIB} MiB"
    todo = "free some of it, or enlarge it (in docker: --shm-size)"
    if usage.free < _SHM_NEEDED:
        return problem("shared memory", f"{seen}; {_SHM_NEEDED // _MIB} MiB are needed", todo)
    return ok("shared memory", seen) if usage.free >= _SHM_WISHED else warning("shared memory", f"{seen}: little", todo)

"""Clusters that all tests share."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from checks import MARK, connected, disconnect
from cli_shell import Shell, new_shell

from dlrl_core.plan import ClusterView

# Other tests run beside: how long an example takes says nothing.
hypothesis.settings.register_profile("dlrl", deadline=None)
hypothesis.settings.load_profile("dlrl")

_guard: subprocess.Popen[bytes] | None = None

collect_ignore = [f"{name}_runs" for name in ("openrlhf", "verl") if importlib.util.find_spec(name) is None]
"""Runs of a framework need its own environment; `make test` runs them there."""
SHARED_CLUSTERS = {"cluster_2_nodes_8_gpus", "cluster_4_gpus", "cluster_8_gpus"}


def pytest_configure(config: pytest.Config) -> None:
    """All files of a test run lie under one short name in /tmp and one in memory; a guard removes them in any case."""
    global _guard  # noqa: PLW0603 - one for each run
    os.environ[MARK] = str(os.getpid())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # run in a shell's background; processes would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is not None or config.option.collectonly:
        return
    base = Path("/tmp") / f"d{secrets.token_hex(2)}"
    base.mkdir(mode=0o700)
    config.option.basetemp = str(base / "p")
    memory = Path("/dev/shm") / base.name
    memory.mkdir(mode=0o700)
    os.environ.update(DLRL_TEST_TMP=str(base), DLRL_MEMORY=str(memory))
    # It reads from a pipe that only this process holds: the end of the file is the end of the run, SIGKILL included.
    clean = 'cat >/dev/null; rm -rf "$0" "$0"-* "$1"; sleep 3; rm -rf "$0" "$0"-* "$1"'
    words = ["sh", "-c", clean, str(base), str(memory)]
    _guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set markers: `framework` on its runs, `shared_cluster` on tests that `make test` runs in a process of theirs.

    Where what a test needs is missing, it is skipped.
    """
    for item in items:
        if SHARED_CLUSTERS & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.shared_cluster)
        if item.path.parent.name.endswith("_runs"):
            item.add_marker("framework")
        needed = [mark.kwargs["needs"] for mark in item.iter_markers("framework") if "needs" in mark.kwargs]
        for name in needed:
            if importlib.util.find_spec(name) is None:
                item.add_marker(pytest.mark.skip(reason=f"{name} is not installed here"))


def pytest_unconfigure() -> None:
    if _guard is not None and _guard.stdin is not None:
        _guard.stdin.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of one cluster in a row share a connection; any other test finds this process connected to none."""
    if not any(name.startswith("ray_") for name in getattr(item, "fixturenames", ())):
        disconnect()


@pytest.fixture(autouse=True)
def dlrl_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of a test's jobs go to a folder of the test; no cluster is named by accident."""
    home = tmp_path / "dlrl_home"
    monkeypatch.setenv("DLRL_HOME", str(home))
    for name in ("RAY_ADDRESS", "DLRL_STORE", "DLRL_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def shell() -> Iterator[Shell]:
    """Runs `dlrl`; what it writes is gone after the test."""
    with new_shell() as made:
        yield made


@pytest.fixture(scope="session")
def cluster_2_nodes_8_gpus() -> Iterator[str]:
    """The address of two nodes with 4 logical GPUs each. It dies with the test run, however that ends."""
    from dlrl_local_ray.local_cluster import LocalCluster

    cluster = LocalCluster()
    try:
        yield cluster.add_nodes(ClusterView.described(node_num=2, resources={"CPU": 16, "GPU": 4}))
    finally:
        cluster.stop()


@pytest.fixture
def ray_2_nodes_8_gpus(cluster_2_nodes_8_gpus: str) -> Iterator[str]:
    """This process is connected to the cluster; after the test, nothing of any job may be left on it."""
    with connected(cluster_2_nodes_8_gpus):
        yield cluster_2_nodes_8_gpus

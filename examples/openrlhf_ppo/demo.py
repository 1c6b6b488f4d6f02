"""A real PPO of a tiny model, with OpenRLHF, DeepSpeed and vLLM, that loses its rollout on the way: python demo.py

All five roles run on an embedded local Ray with logical GPUs. When step 5 begins, the process of the vLLM engine is
killed by SIGKILL. What the frameworks print goes to a file.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from dlrl_chaos.chaos import Chaos
from dlrl_core import JobResult, JobStatus, RLJob, RLJobBuilder
from dlrl_core.errors import DlrlError

HERE = Path(__file__).parent
NAME = "openrlhf-demo"
VICTIM = "rollout-0"
KILLED_STEP = 5
_LOOK_S = 0.3
_SILENCE_S = 30.0


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="openrlhf-demo-"))
    say = Sayer(sys.stdout)
    log = folder / "log.txt"
    with log.open("w", buffering=1) as file:
        say(f"a tiny policy and a tiny reward model are made in {folder}")
        make_tiny = [sys.executable, str(HERE / "make_tiny.py"), str(folder)]
        subprocess.run(make_tiny, check=True, stdout=file, stderr=file)
        job = build(folder)
        print(job.plan(), flush=True)
        say(f"a local Ray with logical GPUs starts; what the frameworks print goes to {log}")
        try:
            with redirect_stdout(file), redirect_stderr(file):
                result = run(job, say)
        except DlrlError as error:
            say(f"it went wrong; more is in {log}\n{error}")
            return 1
        except KeyboardInterrupt:
            return 130
    return show(result)


def build(folder: Path) -> RLJob:
    """The job of OpenRLHF's own launch script, which may be broken on purpose."""
    os.environ["TINY"] = str(folder)  # the script asks for it
    return (
        RLJobBuilder()
        .framework("openrlhf")
        .config(["bash", str(HERE / "train_tiny.sh")])
        .allow_chaos()
        .build()
    )  # fmt: skip


def run(job: RLJob, say: Sayer) -> JobResult:
    """The job to its end, with a kill on the way. Ctrl-C stops it."""
    os.environ.pop("RAY_ADDRESS", None)
    handle = job.submit(NAME, blocking=False)
    try:
        is_ordered = False
        while not (status := handle.status()).is_final:
            say.saw(status)
            if status.step is not None and not is_ordered:
                say(f"chaos: SIGKILL of {VICTIM}, when step {KILLED_STEP} begins")
                Chaos(NAME).inject(VICTIM, "kill", step=KILLED_STEP)
                is_ordered = True
            time.sleep(_LOOK_S)
        return handle.wait()
    except KeyboardInterrupt:
        say("stopping")
        handle.stop("interrupted (Ctrl-C)")
        raise


class Sayer:
    """Says how the job goes, a line for each change, with the time since the beginning."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._said_at = self._began
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        self._said_at = time.monotonic()
        print(f"{self._said_at - self._began:6.1f} s  {text}", file=self._stream, flush=True)

    def saw(self, status: JobStatus) -> None:
        """Everything that is worth a line now and was not said before; if that is nothing for long, who is ready."""
        self._once(f"the job is {status.state}")
        if status.phase in _PHASES:
            self._once(_PHASES[status.phase])
        if status.step and (done := status.step - (status.phase == "fit")):
            reward = status.metrics.get("reward", float("nan"))
            self._once(f"step {done}/{status.total_steps} is done", f": reward {reward:+.4f}")
        for one in status.workloads:
            if one["restarts"]:
                self._once(f"{one['name']} is {one['state']}, in process number {one['restarts'] + 1} of its life")
        if time.monotonic() - self._said_at > _SILENCE_S:
            ready = sum(one["state"] == "ready" for one in status.workloads)
            self(f"... {ready} of {len(status.workloads)} workloads are ready")

    def _once(self, text: str, more: str = "") -> None:
        if text not in self._said:
            self._said.add(text)
            self(f"{text}{more}")


_PHASES = {
    "init": "OpenRLHF loads the models and starts the engine",
    "fit": "OpenRLHF trains",
    "done": "training is done",
}


def show(result: JobResult) -> int:
    """The tables at the end. 1 if the kill did not happen, or a step is missing: then nothing was shown."""
    history: list[dict[str, Any]] = result.value["history"]
    restarts = restarts_of(result.status)
    console = Console(highlight=False)
    console.print(_steps(history))
    console.print(_restarts(restarts))
    if restarts[VICTIM] == 0 or [one["step"] for one in history] != list(range(1, result.value["steps"] + 1)):
        console.print(f"this is not what was to be shown: {VICTIM} is killed once, and every step happens once")
        return 1
    usual = statistics.median(one["seconds"] for one in history if one["step"] != KILLED_STEP)
    killed = history[KILLED_STEP - 1]["seconds"]
    took = f"step {KILLED_STEP} took {killed:.1f} s, the median of the others is {usual:.1f} s"
    console.print(f"time lost: {killed - usual:.1f} s ({took})")
    console.print(f"all {len(history)} steps happened once, in {result.seconds:.0f} s. More: dlrl why {NAME}")
    return 0


def restarts_of(status: JobStatus) -> dict[str, int]:
    """How often each process was started again."""
    view = status.to_dict()
    workloads = {one["name"]: one["restarts"] for one in status.workloads}
    return {"master": view["master_incarnation"] - 1, "trainer": view["trainer"]["incarnation"], **workloads}


def _steps(history: list[dict[str, Any]]) -> Table:
    table = Table("step", "reward", "seconds", "", title="PPO", title_justify="left")
    for one in history:
        note = f"{VICTIM} was killed" if one["step"] == KILLED_STEP else "the first" if one["step"] == 1 else ""
        table.add_row(str(one["step"]), f"{one['reward']:+.4f}", f"{one['seconds']:.1f}", note)
    return table


def _restarts(restarts: Mapping[str, int]) -> Table:
    table = Table("process", "restarts", title="restarts", title_justify="left")
    for name, count in restarts.items():
        table.add_row(name, str(count))
    return table


if __name__ == "__main__":
    sys.exit(main())

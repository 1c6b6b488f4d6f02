"""A tiny PPO with real OpenRLHF: its flags, and a job that is watched and hurt while it runs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from checks import short_temp_folder

from dlrl_core import RLJobBuilder
from dlrl_core.api.chaos import Chaos
from dlrl_core.api.job_handle import JobHandle

LIMIT_S = 600.0
ENDED = ("finished", "failed", "stopped")
ENV = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def flags(assets: Path, out: Path, **more: Any) -> list[str]:
    """OpenRLHF's own flags for the tiny model; `train__async_enable=True` adds `--train.async_enable`."""
    told = {
        "ref.num_gpus_per_node": 1,
        "reward.num_gpus_per_node": 1,
        "critic.num_gpus_per_node": 1,
        "actor.num_gpus_per_node": 1,
        "vllm.num_engines": 1,
        "vllm.tensor_parallel_size": 1,
        "vllm.enforce_eager": True,
        "vllm.sync_backend": "gloo",
        "actor.model_name_or_path": assets / "policy",
        "reward.model_name_or_path": assets / "reward",
        "ckpt.output_dir": out / "final",
        "ckpt.path": out / "ckpt",
        "train.micro_batch_size": 2,
        "train.batch_size": 8,
        "rollout.micro_batch_size": 4,
        "rollout.batch_size": 8,
        "rollout.max_new_tokens": 16,
        "data.max_len": 64,
        "data.max_samples": 64,
        "data.prompt_dataset": assets / "prompts.jsonl",
        "data.input_key": "input",
        "data.label_key": "label",
        "ds.zero_stage": 2,
        "ds.param_dtype": "bf16",
        "ds.attn_implementation": "eager",
        "actor.adam.lr": 1e-3,
        "critic.adam.lr": 1e-3,
        "algo.kl.init_coef": 0.01,
        "logger.logging_steps": 1,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    words: list[str] = []
    for name, value in told.items():
        if value is None or value is False:
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


@dataclass
class Watched:
    """A job of the tiny PPO, and what was seen of it."""

    handle: JobHandle
    steps: list[int] = field(default_factory=list)
    """Steps as they were seen, in order of time."""

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.look() < step:
            status = self.handle.status()
            assert status.state not in ENDED, f"the job was over before step {step}: {status.state}, {status.why}"
            assert time.monotonic() < deadline, f"step {step} was not reached; seen: {self.steps}"
            time.sleep(0.1)

    def look(self) -> int:
        """The step it is in, -1 before the first."""
        step = self.handle.status().step
        if step is not None and (not self.steps or self.steps[-1] != step):
            self.steps.append(step)
        return self.steps[-1] if self.steps else -1

    def hurt(self, who: str, *, chance: random.Random) -> None:
        """SIGKILL it at some moment of a step."""
        self.wait_for_step(self.look() + 1)
        time.sleep(chance.uniform(0.0, 1.0))
        Chaos(self.handle.name).inject(who, "kill")

    def restarts(self) -> dict[str, int]:
        return {one["name"]: one["restarts"] for one in self.handle.status().workloads}


def builder(words: Sequence[str], **env: str) -> RLJobBuilder:
    """The job, as a user would say it."""
    return RLJobBuilder().framework("openrlhf").config(list(words)).global_env({**ENV, **_own_temp_folder(), **env})


def start(name: str, words: Sequence[str], **env: str) -> Watched:
    """Submit the job with budgets that allow what tests do to it."""
    budget = {"workload": 20, "role": 20, "job": 20, "node": 1000, "backoff_s": 0.0}
    job = builder(words, **env).restart_budget(**budget).allow_chaos().build()
    return Watched(job.submit(name, blocking=False))


def _own_temp_folder() -> dict[str, str]:
    """vLLM leaves its sockets where it has them, and an engine that is killed can't remove any."""
    folder = str(short_temp_folder())
    return {"TMPDIR": folder, "VLLM_RPC_BASE_PATH": folder}


def engine_processes() -> list[str]:
    """The processes that vLLM itself starts; it names them."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
        if line.startswith(("VLLM::", "vllm::")):
            found.append(f"{process.pid} {line}")
    return found

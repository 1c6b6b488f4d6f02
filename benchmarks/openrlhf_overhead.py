"""What dlrl costs OpenRLHF: the time of a step, and until the first one is done, over OpenRLHF alone.

    .venvs/openrlhf/bin/python -m benchmarks.openrlhf_overhead

Both sides run the same flags with the tiny models of examples/openrlhf_ppo, on a local Ray with logical GPUs, in turns.
Times are those of OpenRLHF's own tensorboard log. Under dlrl each step is also committed.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.openrlhf_curves import curves
from benchmarks.report import Comparison, report

ROOT = Path(__file__).parents[1]
ROUNDS = 3
WARM_UP = 4
STEP_BAR, START_BAR = 1.03, 1.15
ENV = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
SIDES = {"dlrl": "benchmarks.openrlhf_dlrl", "stock": "benchmarks.openrlhf_stock"}
FLAGS = """
--actor.num_gpus_per_node 1 --critic.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --reward.num_gpus_per_node 1
--vllm.num_engines 1 --vllm.tensor_parallel_size 1 --vllm.enforce_eager --vllm.sync_backend gloo
--data.input_key input --data.label_key label --data.max_samples 64 --data.max_len 96 --train.num_episodes 8
--rollout.batch_size 32 --rollout.micro_batch_size 8 --rollout.max_new_tokens 32
--train.batch_size 32 --train.micro_batch_size 4 --ds.zero_stage 2 --ds.param_dtype bf16
--ds.attn_implementation eager --algo.kl.init_coef 0.01 --logger.logging_steps 1
"""


@dataclass(frozen=True)
class Times:
    start_s: float
    step_s: float


def run(side: str, assets: Path, out: Path) -> Times:
    """One run of one side, in processes of its own."""
    paths = {
        "actor.model_name_or_path": assets / "policy",
        "reward.model_name_or_path": assets / "reward",
        "data.prompt_dataset": assets / "prompts.jsonl",
        "ckpt.output_dir": out / "final",
        "ckpt.path": out / "ckpt",
        "logger.tensorboard_dir": out / "tensorboard",
    }
    words = [*FLAGS.split(), *(word for name, path in paths.items() for word in (f"--{name}", str(path)))]
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", SIDES[side], *words],
        cwd=ROOT,
        env={**os.environ, **ENV, "DLRL_HOME": str(out / "home"), **_temp(assets.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    ends = [at for _, _, at in curves(out / "tensorboard")["train/policy_loss"]]
    steps = [after - before for before, after in itertools.pairwise(ends)]
    return Times(start_s=ends[0] - began, step_s=statistics.median(steps[WARM_UP:]))


def _temp(folder: Path) -> dict[str, str]:
    """vLLM leaves its sockets behind."""
    return {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}


def main() -> None:
    found: dict[str, list[Times]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tiny = ROOT / "examples" / "openrlhf_ppo" / "make_tiny.py"
        subprocess.run([sys.executable, str(make_tiny), str(folder / "tiny")], check=True, capture_output=True)
        for number in range(ROUNDS):
            for side in sorted(SIDES, reverse=bool(number % 2)):
                times = run(side, folder / "tiny", folder / f"{side}{number}")
                found[side].append(times)
                print(f"{side}: start {times.start_s:.1f} s, step {times.step_s:.3f} s", file=sys.stderr, flush=True)
    ours, theirs = found["dlrl"], found["stock"]
    report(
        [
            Comparison(
                name="step",
                ours_s=[one.step_s for one in ours],
                theirs_s=[one.step_s for one in theirs],
                bar=STEP_BAR,
            ),
            Comparison(
                name="start",
                ours_s=[one.start_s for one in ours],
                theirs_s=[one.start_s for one in theirs],
                bar=START_BAR,
            ),
        ],
        ours="dlrl",
        theirs="stock",
    )


if __name__ == "__main__":
    main()

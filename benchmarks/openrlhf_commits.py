"""What commits cost OpenRLHF's policy on DeepSpeed, ZeRO-2 and ZeRO-3, at three sizes: blocking, steps and memory.

    .venvs/openrlhf/bin/python -m benchmarks.openrlhf_commits

benchmarks/commit_jobs.py says what is measured. The role is the adapter's own, on one rank; a step computes log
probabilities of a batch some times, then trains on it.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.commit_jobs import Case, models, run

FLAGS = """
--actor.num_gpus_per_node 1 --critic.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --reward.num_gpus_per_node 1
--vllm.num_engines 1 --vllm.tensor_parallel_size 1 --vllm.sync_backend gloo --reward.model_name_or_path none
--data.prompt_dataset none --ds.param_dtype bf16 --ds.attn_implementation eager --logger.logging_steps 1
"""
SECONDS = {"1m": (12.0, 0.5), "20m": (20.0, 1.0), "100m": (60.0, 2.0)}
"""By size: how long a job trains at least, and how long a step reads the state."""
SAMPLES = 4


def case(stage: int, size: str, model: Path) -> Case:
    batch = ["--train.batch_size", SAMPLES, "--train.micro_batch_size", SAMPLES, "--rollout.batch_size", SAMPLES]
    flags = [*FLAGS.split(), *batch, "--ds.zero_stage", stage, "--actor.model_name_or_path", model]
    seconds, read_s = SECONDS[size]
    return Case(
        name=f"zero{stage}_{size}",
        role="benchmarks.openrlhf_commit_roles:DeepSpeedActor",
        seconds=seconds,
        read_s=read_s,
        config={"flags": [str(flag) for flag in flags], "model": str(model), "samples": SAMPLES},
    )


if __name__ == "__main__":
    with models("examples/openrlhf_ppo/make_tiny.py", SECONDS) as folder:
        run([case(stage, size, folder / size / "policy") for stage in (2, 3) for size in SECONDS])

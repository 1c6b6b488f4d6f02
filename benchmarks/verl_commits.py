"""What commits cost verl's policy on Megatron and on FSDP 2, at three sizes: blocking, steps and memory.

    .venvs/verl/bin/python -m benchmarks.verl_commits

benchmarks/commit_jobs.py says what is measured. The role is the adapter's own, on one rank; a step computes log
probabilities of a batch some times, then trains on it.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.commit_jobs import Case, models, run

BASES = {"megatron": "ppo_megatron_trainer", "fsdp2": "ppo_trainer"}
ACTOR = "actor_rollout_ref.actor"
SECONDS = {"1m": (12.0, 0.5), "20m": (20.0, 1.0), "100m": (60.0, 2.0)}
"""By size: how long a job trains at least, and how long a step reads the state."""
SAMPLES = 4


def case(engine: str, size: str, model: Path) -> Case:
    overrides = [
        f"actor_rollout_ref.model.path={model}",
        f"{ACTOR}.ppo_mini_batch_size={SAMPLES}",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu={SAMPLES}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={SAMPLES}",
        f"{ACTOR}.optim.total_training_steps=10000",
        *([f"{ACTOR}.strategy=fsdp2"] if engine == "fsdp2" else []),
    ]
    seconds, read_s = SECONDS[size]
    return Case(
        name=f"{engine}_{size}",
        role="benchmarks.verl_commit_roles:EngineActor",
        seconds=seconds,
        read_s=read_s,
        config={"base": BASES[engine], "overrides": overrides, "samples": SAMPLES},
    )


if __name__ == "__main__":
    with models("examples/verl_ppo/make_tiny.py", SECONDS) as folder:
        run([case(engine, size, folder / size / "model") for engine in BASES for size in SECONDS])

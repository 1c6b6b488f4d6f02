"""What dlrl costs OpenRLHF: the time of a step, and until the first one is done, over OpenRLHF alone.

    .venvs/openrlhf/bin/python -m benchmarks.openrlhf_overhead

Both sides run the same flags with the tiny models of examples/openrlhf_ppo, on a local Ray with logical GPUs, in turns
of seconds. Times are those of OpenRLHF's own tensorboard log, without those of the other's turns. Under dlrl each step
is also committed.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.overhead import Framework, compare

FLAGS = """
--actor.num_gpus_per_node 1 --critic.num_gpus_per_node 1 --ref.num_gpus_per_node 1 --reward.num_gpus_per_node 1
--vllm.num_engines 1 --vllm.tensor_parallel_size 1 --vllm.enforce_eager --vllm.sync_backend gloo
--data.input_key input --data.label_key label --data.max_samples 64 --data.max_len 96 --train.num_episodes 12
--rollout.batch_size 32 --rollout.micro_batch_size 8 --rollout.max_new_tokens 32
--train.batch_size 32 --train.micro_batch_size 4 --ds.zero_stage 2 --ds.param_dtype bf16
--ds.attn_implementation eager --algo.kl.init_coef 0.01 --logger.logging_steps 1
"""


def words(assets: Path, out: Path) -> list[str]:
    paths = {
        "actor.model_name_or_path": assets / "policy",
        "reward.model_name_or_path": assets / "reward",
        "data.prompt_dataset": assets / "prompts.jsonl",
        "ckpt.output_dir": out / "final",
        "ckpt.path": out / "ckpt",
        "logger.tensorboard_dir": out / "tensorboard",
    }
    return [*FLAGS.split(), *(word for name, path in paths.items() for word in (f"--{name}", str(path)))]


if __name__ == "__main__":
    compare(
        Framework(
            make_tiny="examples/openrlhf_ppo/make_tiny.py",
            sides={"dlrl": "benchmarks.openrlhf_dlrl", "stock": "benchmarks.openrlhf_stock"},
            words=words,
            tag="train/policy_loss",
        )
    )

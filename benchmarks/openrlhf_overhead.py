"""What dlrl costs OpenRLHF: the time of a step, and until the first one is done, over OpenRLHF alone.

    .venvs/openrlhf/bin/python -m benchmarks.openrlhf_overhead [--model tiny] [--model 75m]

Both sides run the same flags with models of examples/openrlhf_ppo, on a local Ray with logical GPUs, in turns of
seconds. Times are those of OpenRLHF's own tensorboard log, without those of the other's turns. Under dlrl steps are
also committed, as often as the default budget allows. With 75 million weights there is neither a critic nor a reward
model: two jobs are alive at once, and have to fit into the memory of a small machine.
"""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.overhead import ROOT, Framework, compare

FLAGS = """
--actor.num_gpus_per_node 1 --ref.num_gpus_per_node 1
--vllm.num_engines 1 --vllm.tensor_parallel_size 1 --vllm.enforce_eager --vllm.sync_backend gloo
--data.input_key input --data.label_key label --data.max_samples 64
--ds.zero_stage 2 --ds.param_dtype bf16 --ds.attn_implementation eager --algo.kl.init_coef 0.01 --logger.logging_steps 1
"""
TINY = """
--critic.num_gpus_per_node 1 --reward.num_gpus_per_node 1
--data.max_len 96 --train.num_episodes 12 --rollout.batch_size 32 --rollout.micro_batch_size 8
--rollout.max_new_tokens 32 --train.batch_size 32 --train.micro_batch_size 4
"""
LARGE = f"""
--algo.advantage.estimator reinforce --reward.remote_url {ROOT}/benchmarks/openrlhf_reward.py
--data.max_len 48 --train.num_episodes 3 --rollout.batch_size 8 --rollout.micro_batch_size 8
--rollout.max_new_tokens 16 --train.batch_size 8 --train.micro_batch_size 8
"""


def words(more: str, assets: Path, out: Path) -> list[str]:
    paths = {
        "actor.model_name_or_path": assets / "policy",
        **({"reward.model_name_or_path": assets / "reward"} if more is TINY else {}),
        "data.prompt_dataset": assets / "prompts.jsonl",
        "ckpt.output_dir": out / "final",
        "ckpt.path": out / "ckpt",
        "logger.tensorboard_dir": out / "tensorboard",
    }
    said = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    return [*FLAGS.split(), *more.split(), *said]


if __name__ == "__main__":
    compare(
        Framework(
            make_tiny="examples/openrlhf_ppo/make_tiny.py",
            sides={"dlrl": "benchmarks.openrlhf_dlrl", "stock": "benchmarks.openrlhf_stock"},
            words={"tiny": functools.partial(words, TINY), "75m": functools.partial(words, LARGE)},
            tag="train/policy_loss",
        )
    )

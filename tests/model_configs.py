"""Shapes of models as published, and folders that have nothing but such a config: enough for a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlrl_core import RoleType
from dlrl_core.spec import JobSpec

QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 152064,
}
QWEN2_32B = {
    **QWEN2_7B,
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
}
LLAMA3_70B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
PUBLISHED = {"7B": QWEN2_7B, "32B": QWEN2_32B, "70B": LLAMA3_70B}
PARAMETERS = {"7B": 7_615_616_512, "32B": 32_763_876_352, "70B": 70_553_706_496}
"""As their pages say."""

SCALED_DOWN = {
    **QWEN2_7B,
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "vocab_size": 384,
}
"""Of 2.6 million parameters: a commit's random states and counters are less than 1 % of it."""


def model_folder(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def gigabytes(plan: dict[str, Any], role: str) -> tuple[float, float]:
    """Of what `dlrl plan --json` prints: of the role's largest rank, and of its fullest node."""
    rows = [row for row in plan["state"] if role in row["node_bytes"]]
    largest = (max(row[key][role] for row in rows) for key in ("rank_bytes", "node_bytes"))
    rank, node = (round(size / 1e9, 1) for size in largest)
    return rank, node


def planned_bytes(spec: JobSpec, role: RoleType) -> tuple[list[int], int]:
    """What the plan says of each rank of a role, and of a node that has all of them."""
    planned = spec.role(role)
    assert planned is not None and planned.state_size is not None
    ranks = range(planned.total)
    return [planned.state_size.size_on([rank]) for rank in ranks], planned.state_size.size_on(ranks)

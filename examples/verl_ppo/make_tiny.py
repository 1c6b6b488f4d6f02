"""Makes what a tiny PPO with verl needs, on the spot: a model, a critic, a reward model, their tokenizer, and prompts.

    python make_tiny.py FOLDER [--size tiny]

The models have a few hundred thousand weights, at random, or about as many as the size says. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
)

_TRAIN_PROMPTS = 64
_TEST_PROMPTS = 8
_LARGEST = 60
_VOCABULARY = 384
_SHAPES = {
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
    "1m": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
    "20m": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8},
    "75m": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 16},
    "100m": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 16},
}
"""Heads are of 32 at least: vLLM's attention on a CPU takes no smaller ones."""
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny(folder: Path, size: str = "tiny") -> None:
    """Write `model`, `critic`, `reward_model`, `train.parquet` and `test.parquet` to the folder.

    The critic is for FSDP, where its head would be another one in each run. On Megatron a critic starts from `model`,
    as its bridge expects, with a head that its seed gives.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    shape = _SHAPES[size]
    _model(Qwen2ForCausalLM, folder / "model", tokenizer, shape, seed=0)
    _model(Qwen2ForTokenClassification, folder / "critic", tokenizer, shape, seed=1, num_labels=1)
    _model(Qwen2ForSequenceClassification, folder / "reward_model", tokenizer, shape, seed=2, num_labels=1)
    chance = random.Random(0)
    _prompts(chance, _TRAIN_PROMPTS).to_parquet(folder / "train.parquet")
    _prompts(chance, _TEST_PROMPTS).to_parquet(folder / "test.parquet")


def _prompts(chance: random.Random, count: int) -> pandas.DataFrame:
    """In the columns that verl's own preprocessing scripts write."""
    rows = []
    for index in range(count):
        a, b = chance.randrange(_LARGEST), chance.randrange(_LARGEST)
        rows.append(
            {
                "data_source": "sums",
                "prompt": [{"role": "user", "content": f"what is {a} plus {b} ?"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": str(a + b)},
                "extra_info": {"index": index},
            }
        )
    return pandas.DataFrame(rows)


def _tokenizer() -> PreTrainedTokenizerFast:
    sums = [f"what is {a} plus {b} ? user assistant {a + b} ." for a in range(_LARGEST) for b in range(_LARGEST)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # those of Qwen: transformers would add what is missing
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sums, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=special[0], eos_token=special[2])
    made.chat_template = _TEMPLATE
    return made


def _model(kind: Any, folder: Path, tokenizer: Any, shape: dict[str, int], *, seed: int, **more: Any) -> None:
    """As many tokens as the tokenizer has: verl masks the others in vLLM, and its probabilities would not be ours."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        **shape,
        num_key_value_heads=shape["num_attention_heads"] // 2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **more,
    )
    kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=list(_SHAPES), default="tiny")
    said = parser.parse_args()
    make_tiny(said.folder, said.size)

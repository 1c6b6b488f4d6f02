"""Makes what a tiny PPO needs, on the spot: a policy, a reward model, their tokenizer, and prompts.

    python make_tiny.py FOLDER [--size tiny]

The models have a few hundred thousand weights, at random, or about as many as the size says. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

_PROMPTS = 64
_LARGEST = 60
_SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
    "1m": {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
    "20m": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8},
    "75m": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 16},
    "100m": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 16},
}


def make_tiny(folder: Path, size: str = "tiny") -> None:
    """Write `policy`, `reward` and `prompts.jsonl` to the folder."""
    tokenizer = _tokenizer()
    shape = {"vocab_size": -(-len(tokenizer) // 64) * 64, **_SHAPES[size]}
    _model(Qwen2ForCausalLM, folder / "policy", tokenizer, shape, seed=0)
    _model(Qwen2ForSequenceClassification, folder / "reward", tokenizer, shape, seed=1, num_labels=1)
    chance = random.Random(0)
    with (folder / "prompts.jsonl").open("w") as file:
        for _ in range(_PROMPTS):
            a, b = chance.randrange(_LARGEST), chance.randrange(_LARGEST)
            file.write(json.dumps({"input": f"what is {a} plus {b} ?", "label": str(a + b)}) + "\n")


def _tokenizer() -> PreTrainedTokenizerFast:
    sums = [f"what is {a} plus {b} ? answer {a + b} ." for a in range(_LARGEST) for b in range(_LARGEST)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sums, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    made.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    return made


def _model(kind: Any, folder: Path, tokenizer: Any, shape: dict[str, int], *, seed: int, **more: Any) -> None:
    torch.manual_seed(seed)
    config = Qwen2Config(
        **shape,
        num_key_value_heads=shape["num_attention_heads"] // 2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        dtype="bfloat16",
        **more,
    )
    kind(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=list(_SHAPES), default="tiny")
    said = parser.parse_args()
    make_tiny(said.folder, said.size)

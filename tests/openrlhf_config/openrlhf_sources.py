"""What the tests of OpenRLHF's config share: the flags of its launch scripts, and short ways to read them.

`data/<version>.json` has the flags of every PPO, GRPO and REINFORCE launch script that came with that version. OpenRLHF
itself rewrote the flat flags of 0.10.1 as the dotted ones of 0.10.4, script by script.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlrl_core import RLJobBuilder
from dlrl_core.errors import SpecError
from dlrl_core.plugin import ConfigKind, ConfigSource
from dlrl_openrlhf.config import flat, read

DATA = Path(__file__).parent / "data"
VERSIONS = ("0.8.11", "0.10.1", "0.10.4", "0.11.2")
MODULE = "openrlhf.cli.train_ppo_ray"

SMALL = shlex.split(
    "--actor.model_name_or_path tiny --reward.model_name_or_path judge --data.prompt_dataset prompts "
    "--actor.num_gpus_per_node 2 --critic.num_gpus_per_node 2 --ref.num_gpus_per_node 1 "
    "--reward.num_gpus_per_node 1 --vllm.num_engines 2"
)
"""A job that has everything it needs, of 8 devices."""


needs_openrlhf = pytest.mark.framework(needs="openrlhf")


def scripts(version: str) -> dict[str, list[str]]:
    return json.loads((DATA / f"{version}.json").read_text())


def each_script(*versions: str) -> Any:
    """A parametrization: the flags of every script of these versions, or of all."""
    return pytest.mark.parametrize(
        "words",
        [
            pytest.param(words, id=f"{version}-{name}")
            for version in versions or VERSIONS
            for name, words in scripts(version).items()
        ],
    )


def read_words(*words: str) -> dict[str, Any]:
    return read(ConfigSource(ConfigKind.WORDS, words))


def read_mapping(config: Mapping[str, Any]) -> dict[str, Any]:
    return read(ConfigSource(ConfigKind.MAPPING, config))


def said(*words: str) -> dict[str, Any]:
    """What words say beyond those of the small job, by dotted names."""
    small = flat(read_words(*SMALL))
    return {name: value for name, value in flat(read_words(*SMALL, *words)).items() if small.get(name) != value}


def problems_of(*words: str, base: Sequence[str] = SMALL) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        read_words(*base, *words)
    return caught.value.problems


def job_of(*words: str) -> Any:
    return RLJobBuilder().framework("openrlhf").config(list(words)).build()

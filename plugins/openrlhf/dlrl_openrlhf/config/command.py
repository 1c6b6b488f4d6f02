"""OpenRLHF's training command: which flags it has, and which environment it would have had."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dlrl_launch_script
from dlrl_launch_script import EntryPoint, TrainingCommand

ENTRY = EntryPoint(
    module="openrlhf.cli.train_ppo_ray",
    family=re.compile(r"openrlhf\.cli\.\w+"),
    file=re.compile(r"(?:.*/)?(?:openrlhf/cli/|examples/)?(train_\w+)\.py"),
    argument=re.compile("-"),
    noun="flag",
)


def training_command(words: Sequence[str]) -> TrainingCommand:
    """From a list of flags, a whole command line, or the name of a launch script. Raises SpecError."""
    return dlrl_launch_script.training_command(words, ENTRY)

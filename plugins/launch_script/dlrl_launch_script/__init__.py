"""Reading what a user runs today, a command line or a launch script, without running it."""

from dlrl_launch_script.command import TrainingCommand, training_command
from dlrl_launch_script.entry_point import EntryPoint, Word

__all__ = ["EntryPoint", "TrainingCommand", "Word", "training_command"]

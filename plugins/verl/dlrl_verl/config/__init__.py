"""verl's config, in whatever form the user has it: overrides, a command, a launch script, YAML, a mapping."""

from dlrl_verl.config.reader import read
from dlrl_verl.config.settings import RUNTIME_ENV, Settings

__all__ = ["RUNTIME_ENV", "Settings", "read"]

"""OpenRLHF's config, in whatever form the user has it: words, a launch script, YAML, a mapping."""

from dlrl_openrlhf.config.flag_table import known_flags
from dlrl_openrlhf.config.own_parser import own_namespace
from dlrl_openrlhf.config.reader import read
from dlrl_openrlhf.config.said import RUNTIME_ENV, argv_of, flat
from dlrl_openrlhf.config.settings import Settings

__all__ = ["RUNTIME_ENV", "Settings", "argv_of", "flat", "known_flags", "own_namespace", "read"]

"""Reading a launch script without running it."""

from dlrl_openrlhf.config.shell.script import SHELLS, ShellCommand, read_script

__all__ = ["SHELLS", "ShellCommand", "read_script"]

"""`dlrl doctor`: is this machine, and the cluster if one is named, in order? Each check says what to do."""

from dlrl_core.cli.doctor.examination import examine
from dlrl_core.cli.doctor.verdict import Level, Verdict

__all__ = ["Level", "Verdict", "examine"]

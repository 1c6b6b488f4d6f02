"""`dlrl doctor`: is this machine, and the cluster if one is named, in order? Each check says what to do."""

from dlrl_core.plugin.verdict import Level, Verdict
from dlrl_doctor.examination import examine

__all__ = ["Level", "Verdict", "examine"]

"""`dlrl why`: from what is known of a job to what happened to it. Pure: it asks nobody, and prints nothing."""

from dlrl_core.cli.why.answer import Answer, explain
from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link, Loss, Response
from dlrl_core.cli.why.outcome import Outcome

__all__ = ["Answer", "Evidence", "Link", "Loss", "Outcome", "Response", "explain"]

"""Which steps were lost, or done again."""

from __future__ import annotations

from collections.abc import Sequence

from dlrl_core.cli.why.chain import findings_in
from dlrl_core.cli.why.evidence import Evidence
from dlrl_core.cli.why.link import Link, Loss

_AGAIN = {
    Loss.UNCOMMITTED: "those after the last commit were done again",
    Loss.NOT_DURABLE: "those after the last durable commit were done again",
    Loss.EVERYTHING: "it began again, as nothing was committed",
}
_WORST = (Loss.EVERYTHING, Loss.NOT_DURABLE, Loss.UNCOMMITTED)


def lost_steps(evidence: Evidence, chain: Sequence[Link]) -> str:
    """In half a sentence. A job that failed or was stopped loses what it had not committed; there is no resume."""
    if evidence.view["state"] in ("failed", "stopped"):
        return _left_behind(evidence)
    done_again = {link.response.loss for link in findings_in(chain) if link.response is not None}
    worst = next((loss for loss in _WORST if loss in done_again), None)
    if worst is None:
        return "none"
    return f"none in the end; {_AGAIN[worst]}" if evidence.is_final else f"none so far; {_AGAIN[worst]}"


def _left_behind(evidence: Evidence) -> str:
    step, committed = evidence.step, evidence.committed_step
    if step is None:
        return "none; no step had begun"
    if committed is None:
        return f"all; nothing was committed, and it was in step {step}"
    if step <= committed:
        return f"none; step {committed} was committed"
    return f"those after step {committed}, the last one committed; it was in step {step}"

"""What adapters share when they tell how large a role's committed state is."""

from __future__ import annotations

from collections.abc import Callable

from dlrl_adapter_kit.model_parameters import SizeNotKnown
from dlrl_core.spec.state_size import StateSize


def size_or_reason(size: Callable[[], StateSize]) -> StateSize:
    """The size; one that is not known, with the reason, where that can't be told before the job runs."""
    try:
        return size()
    except SizeNotKnown as error:
        return StateSize(derivation=str(error))


def shown_count(parameters: int) -> str:
    """Such as '7.62 billion parameters'."""
    for name, unit in (("billion", 10**9), ("million", 10**6)):
        if parameters >= unit:
            return f"{parameters / unit:.3g} {name} parameters"
    return f"{parameters} parameters"

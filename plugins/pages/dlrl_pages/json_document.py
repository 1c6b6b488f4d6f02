"""A plan as JSON, with all that its pictures show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dlrl_pages.state_on_nodes import state_on_nodes

if TYPE_CHECKING:
    from dlrl_core.plan.execution_plan import ExecutionPlan


def json_of(plan: ExecutionPlan) -> str:
    """One object; of each list, an item a line, so that a hundred thousand workloads are written in seconds.

    What is in it was made by the planner and has no secrets to hide.
    """
    whole = plan.model_dump(mode="json", exclude={"nodes": {"__all__": {"move"}}, "spares": {"__all__": {"move"}}})
    shown = {
        "device_type": plan.device_type,
        "device_count": plan.device_count,
        **{key: whole[key] for key in ("nodes", "spares", "groups", "deaths", "state_sizes")},
        "state": state_on_nodes(plan),
        "workloads": plan.rows(),
    }
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_value(value)}" for key, value in shown.items()) + "\n}"


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n    " + ",\n    ".join(json.dumps(item, allow_nan=False) for item in value) + "\n  ]"
    return json.dumps(value, allow_nan=False)

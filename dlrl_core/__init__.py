"""dlrl: the control plane that makes LLM reinforcement learning on Ray survive.

The names below are the whole public surface. They are loaded when first used, so that `import dlrl_core`
costs nothing and never brings in Ray by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dlrl_core.api import JobResult as JobResult
    from dlrl_core.api import JobStatus as JobStatus
    from dlrl_core.api import RLJob as RLJob
    from dlrl_core.api import RLJobBuilder as RLJobBuilder
    from dlrl_core.plugin import hookimpl as hookimpl
    from dlrl_core.roles import RoleType as RoleType
    from dlrl_core.trainer import BaseTrainer as BaseTrainer
    from dlrl_core.workload import BaseWorkload as BaseWorkload
    from dlrl_core.workload import trainer_invocation as trainer_invocation
    from dlrl_core.workload import whole as whole

__version__ = "0.1.0"

_HOMES = {
    "BaseTrainer": "dlrl_core.trainer",
    "BaseWorkload": "dlrl_core.workload",
    "JobResult": "dlrl_core.api",
    "JobStatus": "dlrl_core.api",
    "RLJob": "dlrl_core.api",
    "RLJobBuilder": "dlrl_core.api",
    "RoleType": "dlrl_core.roles",
    "hookimpl": "dlrl_core.plugin",
    "trainer_invocation": "dlrl_core.workload",
    "whole": "dlrl_core.workload",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604 - strings, which ruff can't see

__getattr__ = lazy_names(__name__, _HOMES)

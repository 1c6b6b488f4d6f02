"""What a config says and nobody listens to. It is no error, because verl itself accepts it in silence."""

from __future__ import annotations

import logging

from dlrl_verl.config.settings import Settings

_log = logging.getLogger("dlrl")

_OLD = {
    "custom_reward_function.path": "reward.custom_reward_function.path",
    "reward_model.enable": "reward.reward_model.enable",
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.num_workers": "reward.num_workers",
    "sandbox_fusion.url": "reward.sandbox_fusion.url",
}
"""Keys of older versions that verl's command no longer reads, and the ones that it does."""
_PYTHON = "ray_kwargs.ray_init.runtime_env.py_executable"


def warn_of_ignored(settings: Settings) -> None:
    """Log one line for each."""
    for old, new in _OLD.items():
        if settings[old] is not None:
            _log.warning("verl does not read '%s' any more; say '%s' instead", old, new)
    if settings[_PYTHON] is not None:
        _log.info("'%s' is not used: processes of the job run with the Python that dlrl was started with", _PYTHON)

"""Is that class there, and is it what its place needs? Checked before anything starts, where it can be."""

from __future__ import annotations

import logging

from dlrl_core.spec import ClassRef

logger = logging.getLogger("dlrl")


def class_problems(owner: str, ref: ClassRef, *, is_trainer: bool) -> list[str]:
    """Problems of a class the user named. A module whose own dependency is missing here is left for the workers."""
    from dlrl_core.workload.invocation import load_class

    if ref.module == "__main__":
        return [f"{owner} is '{ref}': other processes can't import '__main__'; put the class into a module"]
    try:
        found = load_class(ref)
    except ModuleNotFoundError as error:
        if error.name is not None and (ref.module == error.name or ref.module.startswith(f"{error.name}.")):
            return [f"{owner} is '{ref}': there is no module '{error.name}'"]
        logger.info("%s is '%s', not checked here: module '%s' is missing", owner, ref, error.name)
        return []
    except Exception as error:  # noqa: BLE001 - importing runs user code: whatever it raises is the problem
        return [f"{owner} is '{ref}', which can't be imported: {type(error).__name__}: {error}"]
    return _base_problems(owner, ref, found, is_trainer=is_trainer)


def _base_problems(owner: str, ref: ClassRef, found: type, *, is_trainer: bool) -> list[str]:
    if is_trainer:
        from dlrl_core.trainer import BaseTrainer

        if not issubclass(found, BaseTrainer):
            return [f"{owner} is '{ref}', which does not extend dlrl_core.BaseTrainer"]
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            return [f"{owner} is '{ref}', which does not define {', '.join(f'{name!r}' for name in missing)}"]
        return []
    from dlrl_core.workload import BaseWorkload

    return (
        [] if issubclass(found, BaseWorkload) else [f"{owner} is '{ref}', which does not extend dlrl_core.BaseWorkload"]
    )

"""Adapters that read or fill what they should not."""

from __future__ import annotations

import dataclasses
import itertools

from acme_rl.plugin import AcmeAdapter

from dlrl_core import RoleType, hookimpl
from dlrl_core.spec import ClassRef

DLRL_API_VERSION = 2
_serial = itertools.count(1)


@hookimpl
def dlrl_frameworks():
    return [Fickle, Grasping, Lenient, Nowhere, Eager, Forgetful, Uncommitted]


def _with_rollout(filled, **changes):
    rollout = filled.roles[RoleType.ROLLOUT].model_copy(update=changes)
    return filled.model_copy(update={"roles": {**filled.roles, RoleType.ROLLOUT: rollout}})


class Fickle(AcmeAdapter):
    """Fills something else each time."""

    name = "fickle"

    def fill(self, config):
        return _with_rollout(super().fill(config), env={"TURN": str(next(_serial))})


class Grasping(AcmeAdapter):
    """Writes to the config that it was given."""

    name = "grasping"

    def fill(self, config):
        config["steps"] += 1
        return super().fill(config)


class Lenient(AcmeAdapter):
    """Drops what it does not know."""

    name = "lenient"

    def read_config(self, source):
        known = {key: value for key, value in source.value.items() if key != "no_such_key"}
        return super().read_config(dataclasses.replace(source, value=known))


class Nowhere(AcmeAdapter):
    """Names a class that is not there, no workload, and a scope that is none."""

    name = "nowhere"

    def fill(self, config):
        cls = ClassRef(module="acme_rl.roles", class_name="AcmeRolout")
        return _with_rollout(super().fill(config), cls=cls, total=0, failover="sometimes")


class Eager(AcmeAdapter):
    """Imports its classes where only their names are asked for."""

    name = "eager"

    def fill(self, config):
        import acme_rl.roles  # noqa: F401

        return super().fill(config)


class Forgetful(AcmeAdapter):
    """Its rollouts declare to restart alone, but remember what nobody commits; and each leaves an engine behind."""

    name = "forgetful"

    def fill(self, config):
        return _with_rollout(
            super().fill(config), cls=ClassRef(module="bad_frameworks.roles", class_name="ForgetfulRollout")
        )


class Uncommitted(AcmeAdapter):
    """Its trainer never commits."""

    name = "uncommitted"

    def fill(self, config):
        trainer = ClassRef(module="bad_frameworks.roles", class_name="UncommittedTrainer")
        return super().fill(config).model_copy(update={"trainer": trainer})

"""An adapter whose module imports its framework."""

from __future__ import annotations

import heavy_engine
from acme_rl.plugin import AcmeAdapter

from dlrl_core import hookimpl

DLRL_API_VERSION = 2


@hookimpl
def dlrl_frameworks():
    return [HeavyAdapter]


class HeavyAdapter(AcmeAdapter):
    name = "heavy"
    distribution = "heavy-engine"
    versions = "2.x"
    extra = "heavy"
    description = heavy_engine.__doc__ and ""

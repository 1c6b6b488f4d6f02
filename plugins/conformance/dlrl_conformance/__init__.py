"""A conformance test kit for adapters: what an adapter promises, as tests that it inherits. See `AdapterConformance`.

Nothing else of dlrl imports this package. Its tests run under pytest, which dlrl does not install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dlrl_conformance.conformance import AdapterConformance as AdapterConformance
    from dlrl_conformance.deaths import Death as Death
    from dlrl_conformance.deaths import DeathReport as DeathReport

_HOMES = {
    "AdapterConformance": "dlrl_conformance.conformance",
    "Death": "dlrl_conformance.deaths",
    "DeathReport": "dlrl_conformance.deaths",
}

__all__ = ["AdapterConformance", "Death", "DeathReport"]

__getattr__ = lazy_names(__name__, _HOMES)

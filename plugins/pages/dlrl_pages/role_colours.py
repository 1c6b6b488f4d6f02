"""The colours of the roles in pictures: those of Okabe and Ito, which people with colour blindness tell apart."""

from __future__ import annotations

from typing import NamedTuple

from dlrl_core.roles import RoleType


class Colour(NamedTuple):
    """What a box is filled with, and text on it that can be read (at least 4.5 to 1)."""

    fill: str
    text: str


ROLE_COLOURS = {
    RoleType.ACTOR: Colour("#0072b2", "#ffffff"),
    RoleType.ROLLOUT: Colour("#e69f00", "#111111"),
    RoleType.REWARD: Colour("#009e73", "#111111"),
    RoleType.REFERENCE: Colour("#56b4e9", "#111111"),
    RoleType.CRITIC: Colour("#cc79a7", "#111111"),
}
NOBODY = Colour("#eceff1", "#455a64")

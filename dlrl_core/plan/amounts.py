"""Amounts of resources as whole numbers, so that thirds add up to one.

Ray counts resources in steps of 1/10,000. The planner counts in the same steps; a share of a device is kept as the
exact fraction that was meant, and the shares of a device are cut into steps that add up to exactly what they should.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

STEPS = 10_000
PLENTY = 10**24
"""Steps of a resource of which a described cluster has enough."""


def meant(amount: float) -> Fraction:
    """The fraction that a number stands for: 0.3333333333333333 is a third."""
    return Fraction(amount).limit_denominator(STEPS)


def needed_steps(amount: float) -> int:
    """What is asked for, in steps, rounded up."""
    return math.ceil(round(amount * STEPS, 3))


def free_steps(amount: float) -> int:
    """What there is, in steps, rounded down."""
    return PLENTY if math.isinf(amount) else math.floor(round(amount * STEPS, 3))


def amount_of(steps: int) -> float:
    return steps / STEPS


def cut(shares: Sequence[Fraction]) -> list[int]:
    """The shares of one device in steps. Their sum is exact; what is over goes to those cut shortest."""
    whole = [math.floor(share * STEPS) for share in shares]
    over = math.floor(sum(shares) * STEPS) - sum(whole)
    shortest = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i] * STEPS, i))
    for index in shortest[:over]:
        whole[index] += 1
    return whole

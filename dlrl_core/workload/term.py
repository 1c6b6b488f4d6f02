"""Terms: a workload answers only calls of the present trainer. The term of a trainer is its incarnation.

A term as one more argument would cost an empty call a fifth. So the call slots exist once for each of FAMILIES
consecutive terms, and a workload answers one family at a time. A call by name carries the term in the name.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dlrl_core.errors import StaleTermError
from dlrl_core.workload.invocation import SLOTS

FAMILIES = 2
"""Each method of an actor class costs each process with a handle of it 0.1 ms; a trainer two terms back is gone."""


class Term:
    """The term whose calls a process answers. Set by the trainer's `fence`, in one thread; read by all others."""

    def __init__(self, value: int, *, owner: str) -> None:
        self.value = value
        self.family = value % FAMILIES
        self._owner = owner

    def begin(self, term: int) -> None:
        """Answer no older calls from now on."""
        self.check(term)
        self.value, self.family = term, term % FAMILIES

    def check(self, term: int) -> None:
        if term < self.value:
            self.refuse()

    def method_of(self, call: str) -> str:
        """The method of a call by name. One without a term comes from no trainer, but from another workload."""
        term, _, method = call.rpartition(":")
        if term:
            self.check(int(term))
        return method

    def refuse(self) -> NoReturn:
        raise StaleTermError(f"'{self._owner}' answers the trainer of term {self.value}; this call is of an older one")


def slot_name(slot: int, term: int) -> str:
    """The host's method by which the trainer of that term calls the slot."""
    return f"slot_{term % FAMILIES}_{slot}"


def add_slots(host: type) -> None:
    """Give the class of a workload's host its slots. They look up the method's name in `_slots`, and run `invoke`."""
    for family in range(FAMILIES):
        for slot in range(SLOTS):
            setattr(host, slot_name(slot, family), _slot_method(slot, family))


def _slot_method(slot: int, family: int) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._term.family != family:
            self._term.refuse()
        return self.invoke(self._slots[slot], *args, **kwargs)

    return run

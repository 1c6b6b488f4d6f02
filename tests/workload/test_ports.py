"""The port that a role meets at: nobody else on the node is offered it, though it is bound only later."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from dlrl_core.workload.process import PortClaim

CLAIM_ALIKE = "import os; os.urandom = lambda n: bytes(n); from dlrl_core.workload.process import PortClaim; "


@pytest.fixture(autouse=True)
def everybody_begins_with_the_same_port(monkeypatch):
    monkeypatch.setattr("os.urandom", bytes)


def free_port() -> int:
    claim = PortClaim()
    claim.leave()
    return claim.port


def test_a_claimed_port_is_offered_to_nobody_else():
    claims = [PortClaim(), PortClaim()]
    told = subprocess.run(
        [sys.executable, "-c", CLAIM_ALIKE + "print(PortClaim().port)"], capture_output=True, text=True, check=True
    )
    ports = [*(claim.port for claim in claims), int(told.stdout)]
    for claim in claims:
        claim.leave()

    assert len({*ports}) == 3
    assert free_port() == ports[0], "a claim ends when it is left"


def test_a_claimed_port_can_be_bound_by_whom_it_is_for():
    claim = PortClaim()
    with socket.socket() as rendezvous:
        rendezvous.bind(("", claim.port))
        rendezvous.listen()
        assert free_port() != claim.port
    claim.leave()

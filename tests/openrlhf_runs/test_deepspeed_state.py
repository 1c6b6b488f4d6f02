"""What a commit holds of a rank, with real DeepSpeed in two processes: all that the rank needs, and no more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RANK = Path(__file__).parent / "deepspeed_rank.py"
LIMIT_S = 300.0


def both_ranks(stage: int, folder: Path) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), str(stage), str(folder)],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ended = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(error[-3000:] for _, error in ended)
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.mark.parametrize("stage", [2, 3])
def test_each_rank_goes_back_to_what_it_committed(stage, tmp_path):
    ranks = both_ranks(stage, tmp_path)

    for seen in ranks:
        assert seen["changed"], "training went on after the commit"
        assert seen["restored"]
        assert seen["parameters"] == ["1.bias", "1.weight"], "frozen parameters are not written"
        assert seen["sleeps"] == (stage == 2), "the optimizer's state is where it was when the step began"
    if stage == 2:
        assert [seen["models"] for seen in ranks] == [{"mp_rank_00_model_states.pt": 2}] * 2, "written once on the node"

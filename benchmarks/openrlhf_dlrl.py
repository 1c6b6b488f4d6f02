"""OpenRLHF under dlrl, on an embedded Ray: the other side of benchmarks/openrlhf_stock.py.

python -m benchmarks.openrlhf_dlrl FLAGS...
"""

from __future__ import annotations

import sys

from benchmarks.overhead import OWN_BUDGET
from dlrl_core import RLJobBuilder


def main(argv: list[str]) -> None:
    builder = RLJobBuilder().framework("openrlhf").config(argv)
    builder.commits(budget=OWN_BUDGET).build().submit("benchmark")


if __name__ == "__main__":
    main(sys.argv[1:])

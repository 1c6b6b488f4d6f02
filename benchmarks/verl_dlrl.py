"""verl under dlrl, on an embedded Ray: the other side of benchmarks/verl_stock.py.

python -m benchmarks.verl_dlrl OVERRIDES...
"""

from __future__ import annotations

import sys

from benchmarks.overhead import OWN_BUDGET
from dlrl_core import RLJobBuilder


def main(argv: list[str]) -> None:
    builder = RLJobBuilder().framework("verl").config(argv)
    builder.commits(budget=OWN_BUDGET).build().submit("benchmark")


if __name__ == "__main__":
    main(sys.argv[1:])

"""OpenRLHF under dlrl, on an embedded Ray: the other side of benchmarks/openrlhf_stock.py.

python -m benchmarks.openrlhf_dlrl FLAGS...
"""

from __future__ import annotations

import sys

from dlrl_core import RLJobBuilder


def main(argv: list[str]) -> None:
    RLJobBuilder().framework("openrlhf").config(argv).build().submit("benchmark")


if __name__ == "__main__":
    main(sys.argv[1:])

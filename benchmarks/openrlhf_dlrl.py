"""OpenRLHF under dlrl, on an embedded Ray: the other side of benchmarks/openrlhf_stock.py.

python -m benchmarks.openrlhf_dlrl FLAGS...
"""

from __future__ import annotations

import sys

from benchmarks.committing import run_committing

if __name__ == "__main__":
    run_committing("openrlhf", sys.argv[1:])

"""verl under dlrl, on an embedded Ray: the other side of benchmarks/verl_stock.py.

python -m benchmarks.verl_dlrl OVERRIDES...
"""

from __future__ import annotations

import sys

from benchmarks.committing import run_committing

if __name__ == "__main__":
    run_committing("verl", sys.argv[1:])

"""A process of its own that copies a version to a URL: `python url_copier.py URL RUN_ID VERSION [hang]`."""

from __future__ import annotations

import sys
import threading

from state_samples import commit, state

from dlrl_state import url_storage
from dlrl_state.durable_state import DurableCopies, storage_at
from dlrl_state.state_memory import StateMemory


def main() -> None:
    url, run_id, version, *hangs = sys.argv[1:]
    url_storage._OBJECT = 1000
    memory = StateMemory(run_id=run_id, workload="actor-0")
    memory.write(commit(int(version)), [], state(int(version)))
    if hangs:
        read, seen = url_storage._read, []

        def hang(*args):
            seen.append(args)
            if len(seen) > 4:  # the first objects are there
                print("hangs", flush=True)
                threading.Event().wait(60)
            return read(*args)

        url_storage._read = hang
    DurableCopies(storage_at(url)).copy(memory.held()[f"id{version}"])


if __name__ == "__main__":
    main()

"""The store: can it be read, and may its settings lose records?"""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok


def check(_: DoctorRequest) -> Iterator[Verdict]:
    from dlrl_core.context import default_store_url, open_store, redact

    url = default_store_url()
    with open_store(url) as store:
        jobs = store.jobs()
        yield ok("store", f"{redact(url)} holds {len(jobs)} job{'s' * (len(jobs) != 1)}")
        yield from store.warnings()

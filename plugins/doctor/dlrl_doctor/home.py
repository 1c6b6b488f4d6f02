"""The store: what is to be said of its place, and can it be read?"""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok


def check(_: DoctorRequest) -> Iterator[Verdict]:
    from dlrl_core.context import default_store_url, open_store, redact

    url = default_store_url()
    with open_store(url) as store:
        yield from store.warnings()
        jobs = store.jobs()
        yield ok("store", f"{redact(url)} holds {len(jobs)} job{'s' * (len(jobs) != 1)}")

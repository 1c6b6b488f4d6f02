"""The contract of a store, and how a URL becomes one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from context_samples import survives_pickle
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrl_core.context import Store, default_store_url, open_store
from dlrl_core.context.store import sqlite_url
from dlrl_core.errors import PluginError, StoreError
from dlrl_sqlite.store import SqliteStore


def commit(store: Store, job: str = "a", *, at: int, **rest: Any) -> int:
    return store.commit(job, expected_version=at, **{"puts": {"k": str(at)}, **rest})


def test_commit_is_read_back_whole(store: Store) -> None:
    version = commit(store, at=0, puts={"x": "1", "y": "2"}, events=["e1", "e2"])
    commit(store, at=version, puts={"y": "3", "z": "4"}, deletes=["x", "never there"], events=["e3"])

    stored = store.load("a")

    assert stored is not None
    assert stored.documents == {"y": "3", "z": "4"}
    assert stored.version > version
    assert stored.last_seq == 3
    assert [(event.seq, event.text) for event in store.journal("a")] == [(1, "e1"), (2, "e2"), (3, "e3")]


@pytest.mark.parametrize(
    ("after", "limit", "seqs"),
    [(0, None, [1, 2, 3, 4]), (2, None, [3, 4]), (0, 2, [1, 2]), (3, 5, [4]), (9, None, []), (0, 0, [])],
)
def test_journal_gives_the_part_that_is_asked(store: Store, after: int, limit: int | None, seqs: list[int]) -> None:
    commit(store, at=0, events=["a", "b", "c", "d"])

    assert [event.seq for event in store.journal("a", after, limit)] == seqs


def test_second_writer_of_a_version_is_refused_and_changes_nothing(store: Store) -> None:
    first = commit(store, at=0)
    second = commit(store, at=first, puts={"k": "winner"})

    with pytest.raises(StoreError) as caught:
        commit(store, at=first, puts={"k": "loser"}, events=["lost"])

    assert str(caught.value) == (
        f"job 'a' is at version {second} in the store, this process expected version {first}: "
        "somebody else wrote; load the job again"
    )
    assert survives_pickle(caught.value)
    stored = store.load("a")
    assert stored is not None
    assert (stored.documents, stored.version) == ({"k": "winner"}, second)
    assert store.journal("a") == []


@pytest.mark.parametrize("expected", [1, 7])
def test_job_that_is_not_there_has_version_0_only(store: Store, expected: int) -> None:
    with pytest.raises(StoreError, match=rf"'a' is not there \(version 0\).*expected version {expected}"):
        commit(store, at=expected)
    assert store.load("a") is None


def test_jobs_do_not_see_each_other(store: Store) -> None:
    commit(store, "b", at=0, events=["of b"])
    commit(store, "a", at=0)

    assert store.jobs() == ["a", "b"]
    assert store.journal("a") == []
    assert [event.text for event in store.journal("b")] == ["of b"]
    assert (store.load("c"), store.journal("c")) == (None, [])


def test_closed_store_says_so(store: Store) -> None:
    commit(store, at=0)
    store.close()
    store.close()

    uses: list[Callable[[], object]] = [lambda: store.load("a"), store.jobs, lambda: commit(store, at=1)]
    for use in uses:
        with pytest.raises(StoreError, match="is closed"):
            use()


def test_threads_share_one_store(store: Store) -> None:
    def write(job: str) -> None:
        version = 0
        for number in range(20):
            version = store.commit(job, expected_version=version, puts={"k": str(number)}, events=[str(number)])
            stored = store.load(job)
            assert stored is not None
            assert stored.documents == {"k": str(number)}

    threads = [threading.Thread(target=write, args=(f"job-{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert store.jobs() == ["job-0", "job-1", "job-2", "job-3"]
    assert all([event.text for event in store.journal(job)] == [*map(str, range(20))] for job in store.jobs())


def test_commit_that_is_said_again_is_written_once(store: Store) -> None:
    """Its answer may have been lost on the way."""
    first = commit(store, at=0, events=["e1"], commit_id="one")
    assert commit(store, at=0, events=["e1"], commit_id="one") == first
    second = commit(store, at=first, puts={"k": "2"}, deletes=["x"], events=["e2"], commit_id="two")
    assert commit(store, at=first, puts={"k": "2"}, deletes=["x"], events=["e2"], commit_id="two") == second

    assert [event.text for event in store.journal("a")] == ["e1", "e2"]
    stored = store.load("a")
    assert stored is not None
    assert stored.version == second


def test_commit_that_is_said_again_after_somebody_else_wrote_is_refused(store: Store) -> None:
    first = commit(store, at=0, commit_id="one")
    commit(store, at=first, commit_id="of somebody else")

    with pytest.raises(StoreError, match="somebody else wrote"):
        commit(store, at=0, commit_id="one")


def test_error_of_a_lost_store_does_not_blame_somebody_else(store: Store) -> None:
    version = commit(store, at=0)

    with pytest.raises(StoreError, match="the store lost what it had confirmed, or it is another one"):
        commit(store, at=version + 5)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["commit", "stale"]),
        st.dictionaries(st.sampled_from("xyz"), st.text(max_size=3), max_size=3),
        st.lists(st.sampled_from("xyz"), max_size=2),
        st.lists(st.text(max_size=3), max_size=2),
    ),
    max_size=12,
)


@given(operations=OPERATIONS)
@settings(max_examples=30, deadline=None)
def test_store_does_what_a_dictionary_would(operations: list[Any], new_store_url: Callable[[], str]) -> None:
    model: dict[str, tuple[int, dict[str, str], list[str]]] = {}
    url = new_store_url()
    with open_store(url) as store:
        for job, kind, puts, deletes, events in operations:
            version, documents, journal = model.get(job, (0, {}, []))
            if kind == "stale":
                with pytest.raises(StoreError):
                    store.commit(job, expected_version=version + 1, puts=puts, deletes=deletes, events=events)
            else:
                new = store.commit(job, expected_version=version, puts=puts, deletes=deletes, events=events)
                kept = {key: text for key, text in documents.items() if key not in deletes}
                assert new > version
                model[job] = (new, {**kept, **puts}, journal + events)
    with open_store(url) as store:
        assert store.jobs() == sorted(model)
        for job, (version, documents, journal) in model.items():
            stored = store.load(job)
            assert stored is not None
            assert (stored.version, stored.documents) == (version, documents)
            assert [event.text for event in store.journal(job)] == journal


@pytest.mark.parametrize("name", ["context.db", "with space.db", "50%?#ü.db"])
def test_any_path_survives_its_url(tmp_path: Path, name: str) -> None:
    opened = open_store(sqlite_url(tmp_path / name))

    assert isinstance(opened, SqliteStore)
    assert opened.path == tmp_path / name


def test_url_with_an_absolute_path_opens_that_file(tmp_path: Path) -> None:
    with open_store(f"sqlite://{tmp_path}/x.db") as opened:
        commit(opened, at=0)

    assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://relative.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("sqlite:///directory/", "absolute path"),
        ("sqlite:///x.db?mode=ro", "absolute path"),
        ("/var/lib/context.db", "has no scheme"),
        ("", "has no scheme"),
        ("nosuch://user:hunter2@host", "registered: redis, rediss, sqlite, unix"),
    ],
)
def test_url_that_nothing_opens_is_explained_without_its_password(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        open_store(url)

    assert "hunter2" not in str(caught.value)
    assert survives_pickle(caught.value)


def test_plugin_opens_its_scheme(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr("dlrl_core.plugin.plugin_host", lambda: PluginHostStandIn({"acme": lambda url: store}))

    assert open_store("acme://somewhere") is store


def test_plugin_that_returns_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlrl_core.plugin.plugin_host", lambda: PluginHostStandIn({"acme": lambda url: 5}))

    with pytest.raises(StoreError, match="scheme 'acme' returned a int"):
        open_store("acme://somewhere")


class PluginHostStandIn:
    """In place of the installed plugins."""

    def __init__(self, openers: dict[str, Callable[[str], Any]]) -> None:
        self._openers = openers

    def store_opener(self, scheme: str) -> Callable[[str], Any]:
        if scheme not in self._openers:
            raise PluginError(f"unknown store scheme '{scheme}'")
        return self._openers[scheme]


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({"DLRL_STORE": "redis://h"}, "redis://h"),
        ({"DLRL_STORE": "", "DLRL_HOME": "/x y"}, "sqlite:///x%20y/context.db"),
        ({"DLRL_HOME": "~/other"}, "sqlite:///home/me/other/context.db"),
        ({}, "sqlite:///home/me/.dlrl/context.db"),
    ],
)
def test_default_store_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str
) -> None:
    for name in ("DLRL_STORE", "DLRL_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)

    assert default_store_url() == url

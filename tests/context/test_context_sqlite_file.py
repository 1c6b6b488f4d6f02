"""The SQLite file: who can read it, what never happens to it, and many users at once."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from context_samples import run_python, survives_pickle

from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError
from dlrl_sqlite.store import SqliteStore

SIDE_FILES = ("", "-wal", "-shm")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def side(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def commit(store: SqliteStore, at: int = 0, text: str = "1") -> int:
    return store.commit("a", expected_version=at, puts={"k": text}, events=[text])


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "new" / "home" / "context.db"
    before = os.umask(umask)
    try:
        with SqliteStore(path) as store:
            commit(store)
            modes = {suffix: mode(side(path, suffix)) for suffix in SIDE_FILES}
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(SIDE_FILES, 0o600)
    assert mode(path.parent) == mode(path.parent.parent) == 0o700


def test_file_is_private_before_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "context.db"
    path.touch(mode=0o644)
    with SqliteStore(path) as store:
        commit(store)

    assert mode(path) == 0o600


def test_directory_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with SqliteStore(tmp_path / "context.db") as store:
        commit(store)

    assert mode(tmp_path) == 0o755


def test_reading_what_is_not_there_leaves_nothing_behind(sqlite_store: SqliteStore, store_path: Path) -> None:
    assert sqlite_store.load("a") is None
    assert sqlite_store.jobs() == []
    assert sqlite_store.journal("a") == []

    assert not store_path.parent.exists()


def test_reading_leaves_no_side_files_behind(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        commit(store)
    with SqliteStore(store_path) as store:
        assert store.jobs() == ["a"]

    assert [path.name for path in store_path.parent.iterdir()] == ["context.db"]


def test_reader_sees_commits_of_a_writer_that_came_later(store_path: Path) -> None:
    with SqliteStore(store_path) as reader, SqliteStore(store_path) as writer:
        assert reader.jobs() == []
        version = commit(writer)
        assert reader.load("a") is not None
        commit(writer, version, "2")
        stored = reader.load("a")

    assert stored is not None
    assert stored.documents == {"k": "2"}


def test_reader_is_not_kept_waiting_by_a_writer(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        commit(store)
        blocker = sqlite3.connect(store_path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with SqliteStore(store_path, lock_timeout_s=0.05) as other:
            assert other.jobs() == ["a"]
        blocker.close()


def test_lock_that_is_never_released_is_named(store_path: Path) -> None:
    with SqliteStore(store_path, lock_timeout_s=0.05) as store:
        version = commit(store)
        blocker = sqlite3.connect(store_path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match=r"context\.db' stayed locked for 0\.05 s"):
            commit(store, version)
        blocker.close()
        commit(store, version)


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, but somebody's only copy of something" * 20)


def make_truncated(path: Path) -> None:
    with SqliteStore(path) as store:
        commit(store, text="x" * 50_000)
    path.write_bytes(path.read_bytes()[: 4096 * 4 + 100])


def make_newer(path: Path) -> None:
    with SqliteStore(path) as store:
        commit(store)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()


def make_foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE experiments (id)")
    database.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_garbage, "can't be read as a job context: file is not a database"),
        (make_truncated, "can't be read as a job context: database disk image is malformed"),
        (make_newer, "job context has schema 9, this dlrl reads up to 2; resume with a newer dlrl"),
        (make_foreign, "is an SQLite database of another program"),
    ],
)
def test_file_that_is_not_ours_to_write_is_named_and_left_as_it_is(tmp_path: Path, make, words: str) -> None:
    path = tmp_path / "context.db"
    make(path)
    before = path.read_bytes()

    for use in (
        lambda store: commit(store, 1),
        lambda store: store.load("a"),
        lambda store: store.jobs(),
    ):
        with SqliteStore(path) as store, pytest.raises((SchemaError, StoreError)) as caught:
            use(store)
        assert words in str(caught.value)
        assert str(path) in str(caught.value)
        assert isinstance(caught.value, SchemaError)
        assert survives_pickle(caught.value)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["context.db"]


def test_newer_dlrl_that_comes_by_while_the_store_is_open_is_noticed(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = commit(store)
        newer = sqlite3.connect(store_path)
        newer.execute("PRAGMA user_version = 9")
        newer.close()
        with pytest.raises(SchemaError, match="schema 9, this dlrl reads up to 2"):
            commit(store, version)


def test_commit_to_a_file_that_was_removed_is_refused(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = commit(store)
        for suffix in SIDE_FILES:
            side(store_path, suffix).unlink()
        with pytest.raises(StoreUnavailableError, match="was removed while in use; bring it back"):
            commit(store, version)

    assert list(store_path.parent.iterdir()) == []


def test_commit_to_another_file_in_its_place_is_refused_for_good(store_path: Path, tmp_path: Path) -> None:
    """Its versions may be the same by chance."""
    with SqliteStore(store_path) as store, SqliteStore(tmp_path / "other.db") as other:
        version = commit(store)
        commit(other, text="of somebody else")
        other.close()
        for suffix in SIDE_FILES:
            side(store_path, suffix).unlink()
        (tmp_path / "other.db").replace(store_path)
        with pytest.raises(StoreError, match="was replaced while in use; restart") as caught:
            commit(store, version)

    assert not isinstance(caught.value, StoreUnavailableError)
    with SqliteStore(store_path) as store:
        stored = store.load("a")
        assert stored is not None
        assert stored.documents == {"k": "of somebody else"}


def test_folder_that_goes_away_and_comes_back_is_the_same_store(store_path: Path, tmp_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = commit(store)
        store_path.parent.rename(tmp_path / "away")
        for use in (lambda: commit(store, version), lambda: store.load("a"), store.jobs):
            with pytest.raises(StoreUnavailableError, match="was removed while in use; bring it back"):
                use()
        assert not store_path.parent.exists()
        (tmp_path / "away").rename(store_path.parent)
        commit(store, version, "2")
    with SqliteStore(store_path) as store:
        assert [event.text for event in store.journal("a")] == ["1", "2"]


def test_file_of_the_first_layout_is_read_as_it_is_and_brought_up_to_date_by_a_commit(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = commit(store)
    older = sqlite3.connect(store_path)
    older.executescript("ALTER TABLE jobs DROP COLUMN commit_id; PRAGMA user_version = 1")
    older.close()

    with SqliteStore(store_path) as store:
        assert store.load("a") is not None
        assert sqlite3.connect(store_path).execute("PRAGMA user_version").fetchone() == (1,)
        version = store.commit("a", expected_version=version, puts={}, events=["2"], commit_id="x")
        assert store.commit("a", expected_version=0, puts={}, events=["2"], commit_id="x") == version
        assert [event.text for event in store.journal("a")] == ["1", "2"]
    assert sqlite3.connect(store_path).execute("PRAGMA user_version").fetchone() == (2,)


def test_job_that_an_earlier_dlrl_deleted_is_not_there_and_can_be_created(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = commit(store)
    older = sqlite3.connect(store_path)
    older.executescript("DELETE FROM documents; DELETE FROM events; UPDATE jobs SET is_live = 0, last_seq = 0")
    older.close()

    with SqliteStore(store_path) as store:
        assert (store.jobs(), store.load("a"), store.journal("a")) == ([], None, [])
        with pytest.raises(StoreError, match="somebody deleted it, or the store lost it"):
            commit(store, version)
        commit(store, text="2")
        assert store.jobs() == ["a"]
        assert [(event.seq, event.text) for event in store.journal("a")] == [(1, "2")]


@pytest.mark.parametrize("where", ["file/context.db", "directory"])
def test_path_that_can_t_be_a_file_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with SqliteStore(tmp_path / where) as store, pytest.raises(StoreError, match=f"{tmp_path}/{where}"):
        commit(store)


def test_full_disk_refuses_the_commit_and_keeps_the_last_one(store_path: Path) -> None:
    output = run_python(
        """
        import resource, signal, sys
        from pathlib import Path
        from dlrl_sqlite.store import SqliteStore
        from dlrl_core.errors import StoreError
        store = SqliteStore(Path(sys.argv[1]))
        version = store.commit("a", expected_version=0, puts={"k": "kept"})
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            store.commit("a", expected_version=version, puts={"k": "x" * 1_000_000})
        except StoreError as error:
            print(error)
        print(store.load("a").documents["k"])
        """,
        store_path,
    )

    assert f"store '{store_path}' can't be read or written: " in output
    assert output.endswith("kept\n")


def test_deleted_secret_is_not_in_the_file_any_more(store_path: Path) -> None:
    with SqliteStore(store_path) as store:
        version = store.commit("a", expected_version=0, puts={"k": "hunter2" * 100})
        store.commit("a", expected_version=version, puts={}, deletes=["k"])

    assert b"hunter2" not in store_path.read_bytes()

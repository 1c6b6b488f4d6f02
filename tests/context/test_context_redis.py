"""The Redis store against a real server: URLs, errors, lost answers, lost data, and what is not ours."""

from __future__ import annotations

import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks import is_running, short_temp_folder, wait_until
from context_samples import job_record, run_python, start_python, survives_pickle, workload_record
from redis_front_stand_in import RedisFrontStandIn
from redis_server import RedisServer

from dlrl_core.context import JobContext, Store, open_store
from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError
from dlrl_core.plugin.verdict import Level
from dlrl_redis.url import RedisUrl


def commit(store: Store, at: int = 0, text: str = "1", **rest: Any) -> int:
    return store.commit("a", expected_version=at, puts={"k": text}, events=[text], **rest)


# ---- URLs


@pytest.mark.parametrize(
    ("url", "label", "place", "login"),
    [
        ("redis://h", "redis://h:6379/0", {"host": "h", "port": 6379}, (None, None)),
        ("REDIS://h:1/2", "redis://h:1/2", {"host": "h", "port": 1}, (None, None)),
        ("redis://:p%40%2F%3A@h?db=3", "redis://h:6379/3", {"host": "h", "port": 6379}, (None, "p@/:")),
        ("redis://u:p@[::1]:7/0", "redis://[::1]:7/0", {"host": "::1", "port": 7}, ("u", "p")),
        ("rediss://u:p@h", "rediss://h:6379/0", {"host": "h", "port": 6379, "ssl": True}, ("u", "p")),
        (
            "rediss://h?ssl_ca_certs=/a%20b.pem",
            "rediss://h:6379/0",
            {"host": "h", "port": 6379, "ssl": True, "ssl_ca_certs": "/a b.pem"},
            (None, None),
        ),
        ("unix:///run/r.sock?db=2", "unix:///run/r.sock?db=2", {"unix_socket_path": "/run/r.sock"}, (None, None)),
        ("unix://u:p@/r.sock", "unix:///r.sock?db=0", {"unix_socket_path": "/r.sock"}, ("u", "p")),
    ],
)
def test_url_says_where_and_how_and_shows_no_password(url: str, label: str, place: Any, login: Any) -> None:
    found = RedisUrl.of(url)

    assert (found.label, found.place, (found.username, found.password)) == (label, place, login)
    assert "p@" not in repr(found)
    assert repr(open_store(url)) == f"RedisStore('{label}')"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://", "it names no host"),
        ("redis://:hunter2@", "it names no host"),
        ("redis://h:hunter2", "its port is no number"),
        ("redis://:hun/ter2@h", "write it like redis://user:password@host:6379/0"),
        ("redis://:hun?ter2@h", "after '\\?', it may have db, prefix;"),
        ("redis://:hun#ter2@h", "write that as %23"),
        ("redis://:ter2℀@h", "can't be taken apart"),
        ("redis://[hunter2", "can't be taken apart"),
        ("redis://h/hunter2", "the database must be one number"),
        ("redis://h/1?db=2", "the database must be one number"),
        ("redis://h?password=hunter2", "it may have db, prefix;"),
        ("redis://h?prefix=", "an option after '\\?' is empty"),
        ("redis://h?ssl_ca_certs=/x", "it may have db, prefix;"),
        ("unix://hunter2", "it names no absolute path; write it like unix:///"),
    ],
)
def test_wrong_url_is_explained_without_being_repeated(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        open_store(url)

    assert "ter2" not in str(caught.value)
    assert survives_pickle(caught.value)


def test_without_redis_py_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(StoreError, match=r"redis://h:6379/0 needs redis-py, .*run: pip install 'dlrl\[redis\]'"):
        open_store("redis://:hunter2@h")


def test_other_stores_do_without_redis_py(tmp_path: Path) -> None:
    loaded = run_python(
        """
        import sys
        from dlrl_core.context import JobContext, JobRecord, open_store
        with open_store(sys.argv[1]) as store:
            JobContext.create(store, JobRecord(name="a", spec_json="{}", store_url="unused"))
        print(*sys.modules)
        """,
        f"sqlite://{tmp_path}/x.db",
    ).split()

    assert "redis" not in loaded


# ---- ways in


def test_socket_and_address_lead_to_the_same_store(own_redis_server: RedisServer) -> None:
    with open_store(f"unix://{own_redis_server.socket}?db=1") as by_socket:
        version = commit(by_socket)
    with open_store(f"redis://127.0.0.1:{own_redis_server.port}/1") as by_address:
        commit(by_address, version, "2")
    with open_store(own_redis_server.url) as other_database:
        assert other_database.jobs() == []


def test_keys_are_under_the_prefix(own_redis_server: RedisServer) -> None:
    with open_store(own_redis_server.url) as store, open_store(f"{own_redis_server.url}?prefix=b:") as other:
        commit(store)
        commit(other)
        other.commit("b", expected_version=0, puts={})

        assert (store.jobs(), other.jobs()) == (["a"], ["a", "b"])
    keys = set(own_redis_server.client().keys())
    of_a = {f"{prefix}:{key}" for prefix in ("dlrl", "b") for key in ("head:a", "documents:a", "journal:a")}
    assert keys == {*of_a, "dlrl:schema", "dlrl:jobs", "b:schema", "b:jobs", "b:head:b"}


def test_job_that_an_earlier_dlrl_deleted_is_not_there_and_can_be_created(own_redis_server: RedisServer) -> None:
    server = own_redis_server.client()
    with open_store(own_redis_server.url) as store:
        version = commit(store)
        server.srem("dlrl:jobs", "a")
        server.hset("dlrl:head:a", mapping={"is_live": "0", "commit_id": ""})
        server.delete("dlrl:documents:a", "dlrl:journal:a")

        assert (store.jobs(), store.load("a"), store.journal("a")) == ([], None, [])
        with pytest.raises(StoreError, match="somebody deleted it, or the store lost it"):
            commit(store, version)
        assert commit(store, text="2") > version
        assert store.jobs() == ["a"]
        assert [(event.seq, event.text) for event in store.journal("a")] == [(1, "2")]


def test_password_is_used_and_never_shown() -> None:
    with RedisServer(short_temp_folder(), "--requirepass", "hunter2") as server:
        where = f"127.0.0.1:{server.port}/0"
        with open_store(f"redis://:hunter2@{where}") as store:
            commit(store)
        for login in ("", ":not-hunter2@", "nobody:hunter2@"):
            with open_store(f"redis://{login}{where}") as store, pytest.raises(StoreUnavailableError) as caught:
                commit(store)
            assert f"the store redis://{where} refused the login" in str(caught.value)
            assert "hunter2" not in str(caught.value)


def test_tls_is_spoken_and_the_certificate_is_checked(redis_server: RedisServer, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", *words.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with RedisFrontStandIn(redis_server.port, tls) as front:
        with open_store(f"rediss://localhost:{front.port}?prefix=tls:&ssl_ca_certs={certificate}") as store:
            commit(store)
            assert store.jobs() == ["a"]
        with (
            open_store(f"rediss://localhost:{front.port}?prefix=tls:") as store,
            pytest.raises(StoreUnavailableError, match="certificate"),
        ):
            store.jobs()


# ---- errors


def test_server_that_is_not_there_is_named(own_redis_server: RedisServer) -> None:
    own_redis_server.kill()
    with open_store(own_redis_server.url) as store:
        uses: list[Callable[[], object]] = [lambda: store.load("a"), store.jobs, lambda: commit(store)]
        for use in [*uses, lambda: store.journal("a"), store.warnings]:
            with pytest.raises(StoreUnavailableError, match="is the server up, and reachable") as caught:
                use()
            assert f"the store {own_redis_server.url} does not answer: " in str(caught.value)
            assert survives_pickle(caught.value)


def test_server_that_stands_still_is_given_up_in_time(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlrl_redis.client.COMMAND_TIMEOUT_S", 0.3)
    with open_store(own_redis_server.url) as store:
        version = commit(store)
        own_redis_server.pause()
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            commit(store, version, "2", commit_id="x")
        own_redis_server.resume()
        version = commit(store, version, "2", commit_id="x")

        assert [event.text for event in store.journal("a")] == ["1", "2"]


@pytest.mark.parametrize(
    ("setting", "healthy", "sick"),
    [("min-replicas-to-write", "0", "1"), ("maxmemory", "0", "1"), ("replicaof", "no one", "127.0.0.1 1")],
)
def test_server_that_can_t_write_now_is_no_refusal(
    own_redis_server: RedisServer, setting: str, healthy: str, sick: str
) -> None:
    server = own_redis_server.client()

    def set_to(value: str) -> None:
        words = ["REPLICAOF", *value.split()] if setting == "replicaof" else ["CONFIG", "SET", setting, value]
        server.execute_command(*words)

    with open_store(own_redis_server.url) as store:
        version = commit(store)
        set_to(sick)
        with pytest.raises(StoreUnavailableError, match=f"the store {own_redis_server.url} can't write now: "):
            commit(store, version, "2")
        set_to(healthy)
        commit(store, version, "2")

        assert [event.text for event in store.journal("a")] == ["1", "2"]


def test_user_without_rights_is_told_so(own_redis_server: RedisServer) -> None:
    own_redis_server.client().execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+@connection")
    url = f"redis://reader:pw@127.0.0.1:{own_redis_server.port}"

    with open_store(url) as store, pytest.raises(StoreError, match="does not let this user in") as caught:
        commit(store)

    assert not isinstance(caught.value, StoreUnavailableError)


def test_settings_that_may_lose_records_are_named(own_redis_server: RedisServer) -> None:
    server = own_redis_server.client()
    with open_store(own_redis_server.url) as store:
        assert store.warnings() == []
        server.config_set("appendonly", "no")
        server.config_set("maxmemory", "1gb")
        server.config_set("maxmemory-policy", "allkeys-lru")

        persistence, eviction = store.warnings()
    assert (persistence.level, eviction.level) == (Level.WARNING, Level.WARNING)
    assert "loses records" in persistence.seen and "set 'appendonly yes'" in persistence.todo
    assert "(maxmemory-policy 'allkeys-lru')" in eviction.seen and eviction.todo == "set 'maxmemory-policy noeviction'"


# ---- what is not ours to write


def make_newer(server: Any) -> None:
    server.set("dlrl:schema", "2")


def make_foreign_schema(server: Any) -> None:
    server.set("dlrl:schema", "of another program")


def make_foreign_type(server: Any) -> None:
    server.delete("dlrl:documents:a")
    server.set("dlrl:documents:a", "x")


def make_foreign_head(server: Any) -> None:
    server.hset("dlrl:head:a", "version", "x")


def content(server: Any) -> dict[str, bytes]:
    return {key: server.dump(key) for key in server.scan_iter()}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_newer, "job context has schema 2, this dlrl reads up to 1; resume with a newer dlrl"),
        (make_foreign_schema, "holds something under 'dlrl:schema' that dlrl did not write"),
        (make_foreign_type, "that dlrl did not write"),
        (make_foreign_head, "holds something under 'dlrl:head:a' that dlrl did not write"),
    ],
)
def test_database_that_is_not_ours_to_write_is_named_and_left_as_it_is(
    own_redis_server: RedisServer, make: Callable[[Any], None], words: str
) -> None:
    server = own_redis_server.client()
    with open_store(own_redis_server.url) as store:
        version = commit(store)
        make(server)
        before = content(server)

        for use in (lambda: commit(store, version), lambda: store.load("a")):
            with pytest.raises(SchemaError, match=words) as caught:
                use()
            assert own_redis_server.url in str(caught.value)
            assert survives_pickle(caught.value)
        assert content(server) == before


# ---- lost answers, lost connections, lost data


def test_commit_whose_answer_was_lost_is_written_once(redis_server: RedisServer) -> None:
    with RedisFrontStandIn(redis_server.port) as front, open_store(f"{front.url}?prefix=lost:") as store:
        version = commit(store)
        front.answers_to_lose = 1
        second = commit(store, version, "2")

        assert front.answers_lost == 1
        assert second > version
        assert [event.text for event in store.journal("a")] == ["1", "2"]


def test_commit_whose_answer_is_lost_again_and_again_is_written_once(redis_server: RedisServer) -> None:
    with RedisFrontStandIn(redis_server.port) as front, open_store(f"{front.url}?prefix=lossy:") as store:
        version = commit(store)
        front.answers_to_lose = 2
        with pytest.raises(StoreUnavailableError):
            commit(store, version, "2", commit_id="x")
        assert commit(store, version, "2", commit_id="x") > version

        assert front.answers_lost == 2
        assert [event.text for event in store.journal("a")] == ["1", "2"]


def test_idle_connection_that_was_cut_is_not_noticed(redis_server: RedisServer) -> None:
    with RedisFrontStandIn(redis_server.port) as front, open_store(f"{front.url}?prefix=idle:") as store:
        version = commit(store)
        front.cut()
        commit(store, version, "2")

        assert front.connections == 2


def test_server_that_forgot_everything_lets_no_old_writer_in(own_redis_server: RedisServer) -> None:
    """Not even by chance, after as many commits of a new job."""
    with open_store(own_redis_server.url) as store:
        old = commit(store)
        own_redis_server.client().flushall()
        with pytest.raises(StoreError, match="somebody deleted it, or the store lost it"):
            commit(store, old, "old")
        new = commit(store)
        for _ in range(3):
            with pytest.raises(StoreError, match="somebody else wrote"):
                commit(store, old, "old")
            new = commit(store, new)


WRITER = """
    import itertools, sys
    from dlrl_core.context import JobContext, open_store
    from dlrl_core.errors import StoreUnavailableError

    context = JobContext.load(open_store(sys.argv[1]), "my-ppo")
    for step in itertools.count(1):
        with context.change(is_durable=True) as change:
            change.job(master_incarnation=step)
            for name in context.workloads:
                change.workload(name, incarnation=step, detail="x" * 500)
            change.event("step", f"step {step}")
        print(step, flush=True)
"""


@pytest.mark.parametrize("commits", [1, 7, 30])
@pytest.mark.parametrize(("fsync", "most_lost"), [("always", 0), ("everysec", 10**9)])
def test_server_killed_at_any_moment_has_every_commit_whole(commits: int, fsync: str, most_lost: int) -> None:
    """And every one that it confirmed, if it syncs each."""
    with RedisServer(short_temp_folder(), "--appendfsync", fsync) as server:
        with open_store(server.url) as store:
            JobContext.create(store, job_record(), [workload_record(rank=rank) for rank in range(50)])
        writer = start_python(WRITER, server.url)
        assert writer.stdout is not None
        for _ in range(commits):
            said = int(writer.stdout.readline())
        server.kill()
        rest, errors = writer.communicate(timeout=30)
        said = max([said, *map(int, rest.split())])
        server.start()
        with open_store(server.url) as store:
            context = JobContext.load(store, "my-ppo")
            journal = context.journal()

        assert "StoreUnavailableError" in errors
        step = context.record.master_incarnation
        assert said - most_lost <= step <= said + 1
        assert {workload.incarnation for workload in context.workloads.values()} == {step}
        assert [event.message for event in journal][1:] == [f"step {n + 1}" for n in range(step)]


def test_the_servers_of_tests_die_with_the_test_run(tmp_path: Path) -> None:
    run = start_python(
        """
        import sys, time
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from redis_server import RedisServer
        print(RedisServer(Path(sys.argv[2])).start().pid, flush=True)
        time.sleep(60)
        """,
        Path(__file__).parents[1],
        tmp_path,
    )
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    run.send_signal(signal.SIGKILL)
    run.wait(10)

    wait_until(lambda: not is_running(pid), "the server is gone")

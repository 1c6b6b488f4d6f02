"""The router of a reward model: no request is lost with a server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

import pytest

HOST = "127.0.0.1"


@contextmanager
def server(name: str, *, answers: threading.Event | None = None) -> Iterator[str]:
    """One that tells its name, when it may."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if answers is not None and not answers.wait(60):
                return
            body = json.dumps({"by": name}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    listening = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://{HOST}:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()


@contextmanager
def router(*urls: str, host: str = HOST) -> Iterator[Any]:
    from dlrl_verl.reward_model import Router

    made = Router(list(urls), host)
    try:
        yield made
    finally:
        made.stop()


def ask(made: Any) -> str:
    request = Request(f"http://{made.address}/classify", data=b"{}", headers={"Content-Type": "application/json"})
    return str(json.loads(urlopen(request, timeout=60).read())["by"])


def asked_once() -> str:
    with server("one") as one, router(one) as made:
        return ask(made)


def asked_over_ipv6() -> tuple[str, str]:
    with server("one") as one, router(one, host="::1") as made:
        return made.address, ask(made)


def server_replaced_while_asked() -> tuple[str, int]:
    """The first never answers; who answers in the end, and how many requests are still counted."""
    answers = threading.Event()
    with server("lost", answers=answers) as lost, server("new") as new, router(lost) as made:
        with ThreadPoolExecutor() as thread:
            asked = thread.submit(ask, made)
            while not made.request_counts[lost]:
                time.sleep(0.01)
            made.ask([new])
            by = asked.result(60)
        answers.set()
        return by, made.request_counts[new]


def server_replaced_that_was_gone() -> tuple[bool, str]:
    """Whether the request came back while nobody listened, and who answers in the end."""
    with server("gone") as gone:
        pass
    with router(gone) as made, server("new") as new, ThreadPoolExecutor() as thread:
        asked = thread.submit(ask, made)
        while not made.request_counts[gone]:
            time.sleep(0.01)
        time.sleep(1.0)
        was_early = asked.done()
        made.ask([new])
        return was_early, asked.result(60)


SCENARIOS = (asked_once, asked_over_ipv6, server_replaced_while_asked, server_replaced_that_was_gone)


def play() -> dict[str, Any]:
    """All of them in one process: to import verl takes long."""
    from dlrl_verl import cpu

    cpu.prepare()
    return {scenario.__name__: scenario() for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def seen(imported_process):
    return imported_process(play)


def test_a_request_goes_to_a_server(seen):
    assert seen["asked_once"] == "one"


def test_the_address_may_be_of_ipv6(seen):
    address, by = seen["asked_over_ipv6"]

    assert address.startswith("[::1]:")
    assert by == "one"


def test_a_request_to_a_server_that_never_answers_goes_to_the_one_that_takes_its_place(seen):
    assert seen["server_replaced_while_asked"] == ("new", 0)


def test_a_request_waits_while_no_server_listens(seen):
    assert seen["server_replaced_that_was_gone"] == (False, "new")

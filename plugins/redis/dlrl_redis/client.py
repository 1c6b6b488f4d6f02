"""RedisClient: commands to one server with timeouts; its errors raised as ours, with the server's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from dlrl_core.errors import StoreError
from dlrl_redis.errors import ALL, as_ours, is_broken_connection
from dlrl_redis.url import RedisUrl

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0

T = TypeVar("T")


class RedisClient:
    """Runs commands that may be sent twice: if the connection breaks, the command is sent again once, immediately."""

    def __init__(self, url: RedisUrl) -> None:
        self.label = url.label
        self._is_closed = False
        self._redis = redis.Redis(
            **url.place,
            db=url.database,
            username=url.username,
            password=url.password,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=COMMAND_TIMEOUT_S,
            socket_keepalive=None if "unix_socket_path" in url.place else True,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )

    def run(self, *words: str | int) -> Any:
        """The reply to one command. Raises StoreUnavailableError, StoreError or SchemaError."""
        return self._sent(lambda: self._redis.execute_command(*words))

    def run_all(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The replies to commands that run as one transaction."""

        def transaction() -> list[Any]:
            with self._redis.pipeline(transaction=True) as pipeline:
                for words in commands:
                    pipeline.execute_command(*words)
                replies = pipeline.execute(raise_on_error=False)  # raising would hide the error code in a sentence
            for reply in replies:
                if isinstance(reply, exceptions.RedisError):
                    raise reply
            return list(replies)

        return self._sent(transaction)

    def _sent(self, command: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreError(f"the store {self.label} is closed")
        try:
            try:
                return command()
            except exceptions.ConnectionError as error:
                if not is_broken_connection(error):
                    raise
                return command()  # idle connections are often cut by the network in between
        except ALL as error:
            raise as_ours(error, self.label) from error

    def close(self) -> None:
        self._is_closed = True
        self._redis.close()

"""RedisClient: commands to one server with timeouts. Its errors are raised as ours, with the server's name.

An error means that the server is unavailable, that it refuses, or that the data in it is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError
from dlrl_redis.url import RedisUrl

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0

_ALL = (exceptions.RedisError, OSError, UnicodeDecodeError)

_AWAY = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_CAN_T_WRITE = (
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
_CAN_T_WRITE_CODE = re.compile(r"\b(MISCONF|NOREPLICAS|BUSY|OOM|READONLY)\b")  # Redis 6 puts it inside a sentence
_LOGIN = (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError)
_NOT_WORTH_ANOTHER_TRY = (*_LOGIN, exceptions.BusyLoadingError, exceptions.MaxConnectionsError)

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
                if not _is_broken_connection(error):
                    raise
                return command()  # idle connections are often cut by the network in between
        except _ALL as error:
            raise _as_ours(error, self.label) from error

    def close(self) -> None:
        self._is_closed = True
        self._redis.close()


def _is_broken_connection(error: Exception) -> bool:
    """Whether the same command may succeed immediately on another connection."""
    return isinstance(error, exceptions.ConnectionError) and not isinstance(error, _NOT_WORTH_ANOTHER_TRY)


def _as_ours(error: Exception, store: str) -> StoreError | SchemaError:
    """`store` is the label of the store."""
    text = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, UnicodeDecodeError) or text.startswith("WRONGTYPE"):
        return SchemaError(f"the store {store} holds something that dlrl did not write; choose another '?prefix='")
    if isinstance(error, _LOGIN) or "unauthenticated" in text:
        return StoreUnavailableError(f"the store {store} refused the login: {text}; check user and password of its url")
    if isinstance(error, exceptions.NoPermissionError):
        return StoreError(f"the store {store} does not let this user in: {text}; change the user's ACL")
    if isinstance(error, exceptions.MovedError | exceptions.AskError):
        return StoreError(f"the store {store} is a Redis Cluster; give the url of a single server")
    if isinstance(error, _CAN_T_WRITE) or _CAN_T_WRITE_CODE.search(text):
        return StoreUnavailableError(f"the store {store} can't write now: {text}")
    if isinstance(error, _AWAY):
        return StoreUnavailableError(
            f"the store {store} does not answer: {text}; is the server up, and reachable from this node?"
        )
    return StoreError(f"the store {store} answered with an error: {text}")

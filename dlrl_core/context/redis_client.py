"""RedisClient: one server, asked with bounded waits; its errors as ours, with the server's name in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from dlrl_core.context.redis_url import RedisUrl
from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0

T = TypeVar("T")

_NOT_NOW = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    OSError,
)
_NOT_NOW_CODES = ("MISCONF", "NOREPLICAS", "BUSY", "OOM", "LOADING", "READONLY")
_NEVER_TWICE = (exceptions.AuthenticationError, exceptions.BusyLoadingError, exceptions.MaxConnectionsError)


class RedisClient:
    """Runs commands that may be said twice: one whose connection breaks is said again, once, at once."""

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
        """The answer to one command. Raises StoreUnavailableError, StoreError or SchemaError."""
        return self._said(lambda: self._redis.execute_command(*words))

    def run_all(self, *commands: tuple[str | int, ...]) -> list[Any]:
        """The answers to some commands, with nobody else's in between."""

        def transaction() -> list[Any]:
            with self._redis.pipeline(transaction=True) as pipeline:
                for words in commands:
                    pipeline.execute_command(*words)
                return list(pipeline.execute())

        return self._said(transaction)

    def _said(self, command: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreError(f"the store {self.label} is closed")
        try:
            try:
                return command()
            except exceptions.ConnectionError as error:
                if isinstance(error, _NEVER_TWICE):
                    raise
                return command()  # an idle connection is often cut by what is between us
        except (exceptions.RedisError, OSError) as error:
            raise self._as_ours(error) from error

    def close(self) -> None:
        self._is_closed = True
        self._redis.close()

    def _as_ours(self, error: Exception) -> StoreError | SchemaError:
        text = str(error).strip().rstrip(".") or type(error).__name__
        if isinstance(error, exceptions.AuthenticationError | exceptions.AuthenticationWrongNumberOfArgsError):
            return StoreUnavailableError(
                f"the store {self.label} refused the login: {text}; check user and password of its url"
            )
        if isinstance(error, exceptions.MovedError | exceptions.AskError):
            return StoreError(f"the store {self.label} is a Redis Cluster; give the url of a single server")
        if isinstance(error, exceptions.NoPermissionError):
            return StoreError(f"the store {self.label} does not let this user in: {text}; change its ACL")
        if text.startswith("WRONGTYPE"):
            return SchemaError(f"the store {self.label} holds keys that dlrl did not write; choose another prefix")
        if isinstance(error, _NOT_NOW) or text.startswith(_NOT_NOW_CODES) or "maxmemory" in text:
            return StoreUnavailableError(
                f"the store {self.label} does not answer: {text}; is the server up, and reachable from this node?"
                if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError)
                else f"the store {self.label} can't write now: {text}"
            )
        return StoreError(f"the store {self.label} answered with an error: {text}")

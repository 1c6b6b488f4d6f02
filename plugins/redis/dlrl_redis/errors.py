"""Errors of redis-py as ours: the server is unavailable, it refuses, or the data is not ours."""

from __future__ import annotations

import re

from redis import exceptions

from dlrl_core.errors import SchemaError, StoreError, StoreUnavailableError

ALL = (exceptions.RedisError, OSError, UnicodeDecodeError)

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


def is_broken_connection(error: Exception) -> bool:
    """Whether the same command may succeed immediately on another connection."""
    return isinstance(error, exceptions.ConnectionError) and not isinstance(error, _NOT_WORTH_ANOTHER_TRY)


def as_ours(error: Exception, store: str) -> StoreError | SchemaError:
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

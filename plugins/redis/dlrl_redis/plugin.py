"""Registers the URL schemes of Redis as stores. Imports redis-py when a URL asks for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dlrl_core import hookimpl
from dlrl_core.errors import StoreError

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import StoreOpener
    from dlrl_redis.store import RedisStore

SCHEMES = ("redis", "rediss", "unix")


@hookimpl
def dlrl_stores() -> dict[str, StoreOpener]:
    return dict.fromkeys(SCHEMES, open_redis)


def open_redis(url: str) -> RedisStore:
    """The store behind the URL; nothing is connected yet. Raises StoreError if the URL is wrong or redis-py missing."""
    from dlrl_redis.url import RedisUrl

    wanted = RedisUrl.of(url)
    try:
        importlib.import_module("redis")
    except ImportError as error:
        raise StoreError(
            f"the store {wanted.label} needs redis-py, which can't be imported: {error}; run: pip install 'dlrl[redis]'"
        ) from error
    from dlrl_redis.store import RedisStore

    return RedisStore(wanted)

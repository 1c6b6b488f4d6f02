"""RedisUrl: server, database and login of a store URL. Only its `label` may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from dlrl_core.errors import StoreError

PREFIX = "dlrl:"
_PORT = 6379
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OPTIONS = ("db", "prefix", *_TLS_OPTIONS)


@dataclass(frozen=True, kw_only=True)
class RedisUrl:
    """The parts of a URL. The error of a wrong URL does not repeat it: the password may be the wrong part."""

    label: str
    """Such as 'redis://host:6379/0', free of secrets."""
    place: Mapping[str, Any] = field(repr=False)
    """Arguments for redis-py: host and port, or the path of a socket, and those for TLS."""
    database: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    prefix: str

    @classmethod
    def of(cls, url: str) -> RedisUrl:
        """Raises StoreError."""
        scheme = url.partition("://")[0].lower()
        try:
            parts = _split(url)
            options = _options(parts, scheme)
            database = _database(parts, options)
            label, place = _socket(parts) if scheme == "unix" else _address(parts, scheme, options)
        except ValueError as error:
            raise StoreError(f"store url of scheme '{scheme}' is wrong: {error}; {_example(scheme)}") from None
        return cls(
            label=f"{label}?db={database}" if scheme == "unix" else f"{label}/{database}",
            place=place,
            database=database,
            username=_given(parts.username),
            password=_given(parts.password),
            prefix=options.get("prefix", PREFIX),
        )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text repeats the URL
        raise ValueError("it can't be taken apart") from None


def _options(parts: SplitResult, scheme: str) -> dict[str, str]:
    if parts.fragment:
        raise ValueError("it has a '#'; write that as %23")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = [name for name in _OPTIONS if scheme == "rediss" or name not in _TLS_OPTIONS]
    if not options.keys() <= set(known):
        raise ValueError(f"after '?', it may have {', '.join(known)}")
    if "" in options.values():
        raise ValueError("an option after '?' is empty")
    return options


def _database(parts: SplitResult, options: Mapping[str, str]) -> int:
    in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
    text = options.get("db") or in_path or "0"
    if not text.isdecimal() or (in_path and "db" in options):
        raise ValueError("the database must be one number")
    return int(text)


def _address(parts: SplitResult, scheme: str, options: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    host = unquote(parts.hostname or "")
    if not host:
        raise ValueError("it names no host")
    try:
        port = parts.port or _PORT
    except ValueError:
        raise ValueError("its port is no number up to 65535") from None
    place: dict[str, Any] = {"host": host, "port": port}
    if scheme == "rediss":
        place |= {"ssl": True, **{name: options[name] for name in _TLS_OPTIONS if name in options}}
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", place


def _socket(parts: SplitResult) -> tuple[str, dict[str, Any]]:
    path = unquote(parts.path)
    if parts.hostname or not path.strip("/"):
        raise ValueError("it names no absolute path")
    return f"unix://{path}", {"unix_socket_path": path}


def _given(text: str | None) -> str | None:
    return unquote(text) if text else None


def _example(scheme: str) -> str:
    shape = "unix:///run/redis.sock?db=0" if scheme == "unix" else f"{scheme}://user:password@host:6379/0"
    return f"write it like {shape}, with '/', '?', '#', '@' and '%' of a password percent-encoded"

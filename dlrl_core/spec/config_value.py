"""The user's training config as JSON, such that every value comes back exactly.

OmegaConf holds more than JSON does: bytes, paths, enum members' names, keys that are not strings, and
interpolations that must stay unresolved. What JSON lacks travels as a one-key object `{"$kind": ...}`; a
user's own one-key object that starts with `$` is escaped the same way.
"""

from __future__ import annotations

import base64
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import SpecError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_JSON_SCALARS = (str, bool, int, type(None))


def kind_of(value: object) -> str:
    """The type of a value that is refused, for a sentence."""
    name = type(value).__name__
    return "empty" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class ConfigValue:
    """A config on its way: built once from what the user gave, turned into a `DictConfig` where it is used."""

    def __init__(self, encoded: Any) -> None:
        self.encoded = encoded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigValue) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(repr(self.encoded))

    def __repr__(self) -> str:
        return "ConfigValue(...)"  # a config may hold secrets: it is never printed whole

    @classmethod
    def of(cls, config: Any) -> ConfigValue:
        """From a dict or an OmegaConf, interpolations kept as they are written."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            created = config if OmegaConf.is_config(config) else OmegaConf.create(dict(config))
            plain = OmegaConf.to_container(created, resolve=False, throw_on_missing=False)
        except OmegaConfBaseException as error:
            raise SpecError([f"config can't be held by OmegaConf: {_first_line(error)}"]) from error
        if not isinstance(plain, dict):
            raise SpecError([f"config is {kind_of(plain)}; it must be a mapping at the top"])
        return cls(_encode(plain, "config"))

    def plain(self) -> dict[str, Any]:
        """The config as plain Python values, interpolations unresolved."""
        decoded = _decode(self.encoded)
        assert isinstance(decoded, dict)
        return decoded

    def open(self) -> DictConfig:
        """The config as the user's classes get it."""
        from omegaconf import OmegaConf

        return OmegaConf.create(self.plain())


def read_yaml(path: pathlib.Path) -> dict[str, Any]:
    """A YAML file as a plain mapping, interpolations unresolved; every failure names the file."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except OSError as error:
        raise SpecError([f"can't read '{path}': {error.strerror or error}"]) from error
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        where = " ".join(str(error).split())
        raise SpecError([f"'{path}' is not valid YAML: {where}"]) from error
    if not isinstance(plain, dict):
        raise SpecError([f"'{path}' holds a {type(plain).__name__}; it must be a mapping at the top"])
    return {str(key): value for key, value in plain.items()}


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _encode(value: Any, path: str) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) in _JSON_SCALARS:
        return value
    if isinstance(value, list):
        return [_encode(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _encode_mapping(value, path)
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, pathlib.Path):
        return {"$path": str(value)}
    raise SpecError([f"{path} has a value of type '{type(value).__name__}', which can't be stored; use plain values"])


def _encode_mapping(value: Mapping[Any, Any], path: str) -> dict[str, Any]:
    if all(type(key) is str for key in value):
        encoded = {key: _encode(item, f"{path}.{key}") for key, item in value.items()}
        is_tag_like = len(encoded) == 1 and next(iter(encoded)).startswith("$")
        return {"$plain": encoded} if is_tag_like else encoded
    return {"$pairs": [[_encode(key, path), _encode(item, f"{path}.{key}")] for key, item in value.items()]}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(tag, body)] = value.items()
        if tag in _DECODERS:
            return _DECODERS[tag](body)
    return {key: _decode(item) for key, item in value.items()}


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$bytes": base64.b64decode,
    "$path": pathlib.Path,
    "$plain": lambda body: {key: _decode(item) for key, item in body.items()},
    "$pairs": lambda body: {_decode(key): _decode(item) for key, item in body},
}

"""The flags of older versions in the words of the supported one.

`renamed_flags.json` has those that only got another name, or several (one for the actor, one for the critic): the flat
flags of 0.3.0 to 0.10.1. The rest changed its form and is below. What was said is carried over; what was not said is
as in the supported version, whose defaults differ here and there.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from dlrl_openrlhf.config.flag_table import Flag, FlagTable
from dlrl_openrlhf.config.said import Said, SaidFlag

_log = logging.getLogger("dlrl")

_MEANINGS = {
    "bf16": ("ds.param_dtype", "bf16"),
    "flash_attn": ("ds.attn_implementation", "flash_attention_2"),
    "use_kl_estimator_k3": ("algo.kl.estimator", "k3"),
}
"""Flags without a value that are now one value of another flag."""

_WITHOUT_EFFECT = {
    "actor_init_on_gpu": "bool",
    "disable_trace_cache": "bool",
    "perf": "bool",
    "pretrain_data_probs": "str",
    "pretrain_split": "str",
    "ptx_coef": "float",
    "torch_compile": "bool",
}
"""Flags that are gone and change nothing in what is trained."""

_CORRECTION_ENABLED = (
    "enable_vllm_is_correction",
    "vllm_enable_is_correction",  # in a script that came with 0.9.1 to 0.10.1, though their parser did not take it
    "algo.advantage.is_correction_enable",
)
_CORRECTION_TYPES = ("vllm_is_correction_type", "algo.advantage.is_correction_type")
_CORRECTIONS = {
    "tis": ("token", "clip"),
    "icepop": ("token", "mask"),
    "seq-mask-tis": ("seq", "mask"),
    "mis": ("seq", "mask"),
}
"""Kinds of importance sampling correction before 0.11.2, as level and mode."""

_LENGTH = 1024
"""Default of prompt_max_len and of generate_max_len, through 0.9.7."""

_OTHERS = [
    *(Flag(name=name, dest=name, type="bool", const=True) for name in (*_MEANINGS, *_CORRECTION_ENABLED, "use_icepop")),
    *(Flag(name=name, dest=name, type=kind, const=kind == "bool" or None) for name, kind in _WITHOUT_EFFECT.items()),
    *(Flag(name=name, dest=name, type="str", choices=tuple(_CORRECTIONS)) for name in _CORRECTION_TYPES),
    *(Flag(name=name, dest=name, type="int") for name in ("prompt_max_len", "generate_max_len")),
    Flag(name="pretrain_data", dest="pretrain_data", type="str"),
]


@functools.cache
def _renamed() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("renamed_flags.json").read_text(encoding="utf-8")
    return {old: tuple(new.split()) for old, new in json.loads(text).items()}


def old_flags(table: FlagTable) -> dict[str, Flag]:
    """The flags of older versions by name; a renamed one takes what its new one takes."""
    renamed = {old: dataclasses.replace(table[new[0]], name=old) for old, new in _renamed().items() if new[0] in table}
    return {**renamed, **{flag.name: flag for flag in _OTHERS}}


def translated(flags: list[SaidFlag], problems: list[str]) -> dict[str, Said]:
    """What was said by its name in the supported version; of a flag that was said twice, the last counts."""
    said: dict[str, Said] = {}
    changed: dict[str, Said] = {}
    for one in flags:
        names = _renamed().get(one.flag.name)
        if names is not None:
            said |= {name: Said(one.value, one.where) for name in names}
        elif one.flag in _OTHERS:
            changed[one.flag.name] = Said(one.value, one.where)
        else:
            said[one.flag.dest] = Said(one.value, one.where)
    changed = {name: what for name, what in changed.items() if what.value is not False}
    if "pretrain_data" in changed:
        problems.append(_no_pretraining(changed["pretrain_data"].where))
    for name, what in _meant(changed):
        said.setdefault(name, what)
    _tell_ignored(changed)
    return said


def _no_pretraining(where: str) -> str:
    return (
        f"flag '--pretrain_data' ({where}) mixes a pretraining loss into PPO, which OpenRLHF dropped in 0.7.1; "
        "leave it out"
    )


def _meant(changed: dict[str, Said]) -> Iterator[tuple[str, Said]]:
    for name, (target, value) in _MEANINGS.items():
        if name in changed:
            yield target, Said(value, changed[name].where)
    yield from _correction(changed)
    yield from _lengths(changed)


def _correction(changed: dict[str, Said]) -> Iterator[tuple[str, Said]]:
    enabled = _last(changed, _CORRECTION_ENABLED)
    if enabled is None:
        return
    named = _last(changed, _CORRECTION_TYPES)
    kind = named.value if named else "icepop" if "use_icepop" in changed else "tis"
    level, mode = _CORRECTIONS[kind]
    yield "algo.advantage.is_correction_level", Said(level, enabled.where)
    yield "algo.advantage.is_correction_mode", Said(mode, (named or enabled).where)


def _lengths(changed: dict[str, Said]) -> Iterator[tuple[str, Said]]:
    """The prompt and the answer had a limit each; now the answer has one, and both together."""
    last = _last(changed, ("prompt_max_len", "generate_max_len"))
    if last is None:
        return
    prompt, answer = (changed.get(name, Said(_LENGTH, "")).value for name in ("prompt_max_len", "generate_max_len"))
    yield "rollout.max_new_tokens", Said(answer, last.where)
    yield "data.max_len", Said(prompt + answer, last.where)


def _last(changed: dict[str, Said], names: tuple[str, ...]) -> Said | None:
    return next((changed[name] for name in reversed(list(changed)) if name in names), None)


def _tell_ignored(changed: dict[str, Said]) -> None:
    needs_enabling = () if _last(changed, _CORRECTION_ENABLED) else (*_CORRECTION_TYPES, "use_icepop")
    for name, what in changed.items():
        if name in _WITHOUT_EFFECT:
            _log.warning("flag '--%s' (%s) is ignored: newer versions of OpenRLHF have no use for it", name, what.where)
        elif name in needs_enabling:
            _log.warning("flag '--%s' (%s) is ignored: the correction is not enabled", name, what.where)

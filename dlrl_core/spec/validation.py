"""From the words of a user to checked models: every problem at once, each in a sentence that names its place.

Words are plain mappings, in the form of the job file:
`{"node_num": 2, "roles": {"actor": {"module": "m", "class": "C", "total": 4}}}`.
"""

from __future__ import annotations

import copy
import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dlrl_core.hints import did_you_mean
from dlrl_core.spec.config_value import kind_of
from dlrl_core.spec.frozen import Frozen
from dlrl_core.spec.job_spec import OLD_KEYS, JobSpec, PartSpec, RoleSpec, renamed

M = TypeVar("M", bound=Frozen)
Words = dict[str, Any]
"""What a user said, unchecked."""
Place = tuple[str, str]
"""An option: the full name of its role or part ('' for the job), and the option's own name."""


class ProblemKind(enum.Enum):
    """What kind of mistake it is."""

    REFUSED = enum.auto()
    """A value that its option can't have."""
    CONFLICT = enum.auto()
    """Values that do not go together."""
    MISSING = enum.auto()
    """Something that the job needs, and that a framework could fill."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a job."""

    text: str
    kind: ProblemKind = ProblemKind.CONFLICT
    about: frozenset[Place] = frozenset()
    """The options it speaks of. A conflict with an option that was refused is not worth telling."""


def validated_job(words: Mapping[str, Any], source: str) -> tuple[JobSpec, list[Problem]]:
    """The job, and each problem of its options; a refused option has its default in the job.

    `source` is what to call the job in a sentence about an unknown key.
    """
    misshapen: list[Problem] = []
    spec, problems = validated(JobSpec, _record_form(words, source, misshapen), source)
    return spec, misshapen + problems


def validated(model: type[M], plain: Words, source: str) -> tuple[M, list[Problem]]:
    """The model from plain values, with those left out that are refused, and a problem for each."""
    problems: list[Problem] = []
    while True:
        try:
            return model.model_validate(plain), problems
        except ValidationError as error:
            findings = error.errors(include_url=False)
            problems = problems or [_problem(model, plain, item, source) for item in findings]
            plain = _without(plain, findings)


def refused_texts(model: type[Frozen], error: ValidationError) -> list[str]:
    """What a model of the schema refused, in sentences."""
    return [_problem(model, {}, item, "the job").text for item in error.errors(include_url=False)]


def job_words(plain: Mapping[str, Any], problems: list[str]) -> Words:
    """What a job file says, by today's names; a key without a value is not said."""
    given = said(plain)
    both = [(old, new) for old, new in OLD_KEYS.items() if old in given and new in given]
    problems += [f"'{new}' is given 2 times, as '{old}' too; give it once, as '{new}'" for old, new in both]
    words = renamed(given, OLD_KEYS)
    roles = words.get("roles", {})
    if not isinstance(roles, Mapping):
        problems.append(f"'roles' is {kind_of(roles)}; it must be a mapping of roles")
        roles = {}
    times = Counter(str(name).lower() for name in roles)
    problems += [f"role '{name}' is given {count} times; give it once" for name, count in times.items() if count > 1]
    named = {str(name).lower(): said(role) if isinstance(role, Mapping) else role for name, role in roles.items()}
    return {**words, "roles": named}


def said(words: Mapping[str, Any]) -> Words:
    """The keys that have a value: one without, as in `labels:`, is not said."""
    return {str(key): value for key, value in words.items() if value is not None}


def _record_form(words: Mapping[str, Any], source: str, problems: list[Problem]) -> Words:
    """The words as the record has them: lists of roles and parts, and `cls` for module and class.

    A role or part that is no mapping is left out, with a problem.
    """
    job = _users(words, source, JobSpec, problems)
    if isinstance(job.get("trainer"), Mapping):
        job["trainer"] = _class_form(_users(job["trainer"], "the trainer", None, problems))
    named = {name: _mapping(name, f"role '{name}'", said, problems) for name, said in words.get("roles", {}).items()}
    return {**job, "roles": [_role_form(name, role, problems) for name, role in named.items() if role is not None]}


def _role_form(name: str, words: Mapping[str, Any], problems: list[Problem]) -> Words:
    role = _users(words, f"role '{name}'", RoleSpec, problems)
    if cls := {key: role.pop(key) for key in _CLASS_KEYS if key in role}:
        role["cls"] = _class_form(cls)
    parts = _mapping(name, f"parts of role '{name}'", role.get("parts", {}), problems) or {}
    told = [_part_form(f"{name}.{key}", str(key), part, problems) for key, part in parts.items()]
    return {**role, "role": name, "parts": [part for part in told if part is not None]}


def _part_form(full: str, name: str, words: Any, problems: list[Problem]) -> Words | None:
    part = _mapping(full, f"part '{full}'", words, problems)
    if part is None:
        return None
    return {**_users(said(part), f"part '{full}'", PartSpec, problems), "name": name}


def _users(words: Mapping[str, Any], owner: str, model: type[Frozen] | None, problems: list[Problem]) -> Words:
    """The words of a model, or of a class, without names that only a record has: from a user, these are unknown."""
    known, fields = (model.keys(), [*model.model_fields]) if model else (_CLASS_KEYS, ["class_name"])
    hidden = [key for key in words if key in fields and key not in known]
    problems += [Problem(_unknown_text(owner, key, known), ProblemKind.REFUSED) for key in hidden]
    return {key: value for key, value in words.items() if key not in hidden}


def _mapping(name: str, owner: str, words: Any, problems: list[Problem]) -> Mapping[str, Any] | None:
    if isinstance(words, Mapping):
        return words
    text = f"{owner} is {kind_of(words)}; it must be a mapping"
    problems.append(Problem(text, ProblemKind.REFUSED, frozenset({(name, "cls")})))
    return None


def _class_form(words: Mapping[str, Any]) -> Words:
    return {"class_name" if key == "class" else key: value for key, value in words.items()}


# ---- a finding of pydantic as a problem

_MUST_BE = {
    "int_type": "a whole number",
    "string_type": "a text that is not empty",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "greater than {gt:g}",
    "enum": "one of {expected}",
    "too_short": "{shape} that is not empty",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "dataclass_type": "a mapping with module and class",
}
_CLASS_KEYS = ["module", "class"]
_SHAPES = ("tuple_type", "dict_type", "model_type", "dataclass_type")


@dataclass(frozen=True)
class _Where:
    """Where a finding is: in which role, part or entry of a list, in which option, and in which key of that."""

    name: str
    """The full name of the role or part; '' for the job."""
    owner: str
    """What to call it; '' for the job."""
    rest: tuple[str, ...]

    @classmethod
    def of(cls, loc: Sequence[int | str], plain: Any) -> _Where:
        if loc[-1] == "[key]":
            loc = (*loc[:-2], str(loc[-2]))
        match _in_file(loc):
            case ("roles", int(index), "parts", int(number), *rest):
                role = plain["roles"][index]
                name = f"{role['role']}.{role['parts'][number]['name']}"
                return cls(name, f"part '{name}'", _texts(rest))
            case ("roles", int(index), *rest):
                name = str(plain["roles"][index]["role"])
                return cls(name, f"role '{name}'", _texts(rest))
            case ("roles", str(name), *rest):  # of an adapter
                return cls(name, f"role '{name}'", _texts(rest))
            case ("trainer", *rest):
                return cls("trainer", "the trainer", _texts(rest))
            case (str(field), int(index), *rest):
                return cls("", f"{field}[{index}]", _texts(rest))
            case every:
                return cls("", "", _texts(every))

    @property
    def place(self) -> Place:
        is_of_class = self.name != "" and (not self.rest or self.rest[0] in ("module", "class"))
        return (self.name, "cls" if is_of_class else self.rest[0] if self.rest else "")

    def shown(self) -> str:
        """Such as "'CPU' in resource of role 'actor'"."""
        field, *keys = self.rest or ("",)
        inner = "".join(f"'{key}' in " for key in reversed(keys))
        return f"{inner}{field}{' of ' if field and self.owner else ''}{self.owner}"


def _in_file(loc: Sequence[int | str]) -> tuple[int | str, ...]:
    """The place as a job file names it: module and class are keys of their role."""
    match tuple(loc):
        case (*outer, "cls" | "trainer" as owner, "class_name"):
            return _in_file((*outer, owner, "class"))
        case ("cls", part):
            return (part,)
        case ("roles", role, "cls", *rest):
            return ("roles", role, *rest)
        case every:
            return every


def _texts(loc: Sequence[int | str]) -> tuple[str, ...]:
    texts: list[str] = []
    for part in loc:
        if isinstance(part, int) and texts:
            texts[-1] += f"[{part}]"
        else:
            texts.append(str(part))
    return tuple(texts)


def _problem(model: type[Frozen], plain: Words, item: ErrorDetails, source: str) -> Problem:
    where = _Where.of(item["loc"], plain)
    kind = ProblemKind.MISSING if item["type"] == "missing" and where.name else ProblemKind.REFUSED
    return Problem(_sentence(model, where, item, source), kind, frozenset({where.place}))


def _sentence(model: type[Frozen], where: _Where, item: ErrorDetails, source: str) -> str:
    kind, said = item["type"], item["input"]
    if kind == "sentence":
        return item["msg"]
    if kind == "predicate":
        return f"{where.shown()} {item['msg']}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown_key(model, where, item, source)
    if kind == "missing":
        return _missing(where, source)
    shape = "a mapping" if isinstance(said, Mapping) else "a list"
    must = _MUST_BE[kind].format(shape=shape, **item.get("ctx", {})) if kind in _MUST_BE else item["msg"]
    shown = kind_of(said) if kind in _SHAPES else repr(said)
    return f"{where.shown()} is {shown}; it must be {must}{_example(model, item['loc']) if kind in _SHAPES else ''}"


def _missing(where: _Where, source: str) -> str:
    if where.owner and not where.rest:
        return f"{where.owner} has no class; say its module and class, or a framework that fills it"
    return f"{where.owner or source} has no '{where.rest[-1]}', which is mandatory"


def _unknown_key(model: type[Frozen], where: _Where, item: ErrorDetails, source: str) -> str:
    *outer, _ = where.rest
    inside = _Where(where.name, where.owner, tuple(outer)).shown() or source
    return _unknown_text(inside, str(item["loc"][-1]), _keys_at(model, item["loc"][:-1]))


def _unknown_text(owner: str, key: str, known: Sequence[str]) -> str:
    return f"{owner} has the unknown key '{key}'{did_you_mean(key, known)} known: {', '.join(known)}"


def _keys_at(model: type[Frozen], loc: Sequence[int | str]) -> list[str]:
    found = _model_at(model, loc)
    return _CLASS_KEYS if found is None else found.keys()


def _example(model: type[Frozen], loc: Sequence[int | str]) -> str:
    *outer, last = loc
    owner = _model_at(model, outer)
    field = owner.model_fields.get(str(last)) if owner else None
    return f" such as {field.examples[0]}" if field and field.examples else ""


def _model_at(model: type[Frozen], loc: Sequence[int | str]) -> type[Frozen] | None:
    """The model of a place in the schema; None if the place has none."""
    found: type[Frozen] | None = model
    for part in loc:
        if isinstance(part, str):
            field = found.model_fields.get(part) if found else None
            found = _model_in(field.annotation) if field else None
    return found


def _model_in(annotation: Any) -> type[Frozen] | None:
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)


# ---- leaving out what is refused


def _without(plain: Words, findings: Sequence[ErrorDetails]) -> Words:
    """A copy without the refused values; an item that misses something it needs is left out whole."""
    kept = copy.deepcopy(plain)
    places = {_refused(item) for item in findings}
    for loc in sorted(places, key=lambda loc: [(isinstance(part, str), part) for part in loc], reverse=True):
        _drop(kept, loc)
    return kept


def _refused(item: ErrorDetails) -> tuple[int | str, ...]:
    loc = item["loc"]
    return loc[:-1] if item["type"] == "missing" or loc[-1] == "[key]" else loc


def _drop(holder: Any, loc: Sequence[int | str]) -> None:
    """Delete one value; the whole of what holds it if that is neither a list nor a mapping."""
    key, *inner = loc
    if isinstance(holder, dict):
        key = next((known for known in holder if known == key or str(known) == key), key)
    if inner and isinstance(holder[key], dict | list):
        _drop(holder[key], inner)
    else:
        del holder[key]

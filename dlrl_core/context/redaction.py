"""Which keys name a secret, judged by their words.

A training config is full of tokens, keys and passes that are no secrets: `max_tokens`, `eos_token`,
`prompt_key`, `forward_pass`. So a key is cut into words (`HF_TOKEN`, `hfToken` and `hf-token` are all
'hf', 'token') and the words around the doubtful one decide. Where they don't, it is a secret: a hidden
value in a status costs less than a shown one. The lists were tried on every key of verl and OpenRLHF.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, JsonValue


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SEGMENTS = re.compile(r"[./:]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_ALWAYS = re.compile(
    r".*(secret(?!ar)|passw(or)?d|passphrase|passcode|credential|apikey|accesskey|privatekey|sessionkey).*"
    r"|o?auth|authorization|authentication|authtoken|authkey|creds|cookies?|jwt|bearer"
)
"""Words that are secret by themselves; the first kind also within a word, as in 'dbpassword'."""

_OWNERS = _set(
    """access account aliyun anthropic api app auth authorization aws azure bearer bing bot brave client cloud cohere
    comet csrf dashscope datadog db deepseek deploy deployment discord docker encryption exa firecrawl gcp gemini gh
    git gitea github gitlab google gpg groq hf hmac hub hugging huggingface jina jupyter jwt kaggle langfuse
    langsmith license login master minio mistral mlflow modelscope my neptune ngc npm nvidia oauth openai openrouter
    oss perplexity personal pgp pinecone private pypi redis refresh registry replicate root runpod secret security
    sentry serpapi serper service session shared signing slack ssh ssl storage swanlab tavily telegram tls together
    twilio vault volc wandb webhook zhipu"""
)
"""What a secret key, token or PAT belongs to: 'signing_key', 'hf_token_2024', 'GITHUB_PAT'."""

_DATA_KEYS = _set(
    """answer cache column data dict field fn foreign group image index input item label lookup map metric output
    partition primary prompt public question response reward routing row sort state table text video"""
)
"""What stands before a key of data. Before any other, an upper-case KEY is secret: 'ACME_KEY' is a variable's name."""

_PASS_OWNERS = _OWNERS | _set("admin database email ftp http https mail mysql pg proxy smtp user")

_VOCABULARY = _set(
    """action add any assistant audio balance base begin beginning bos by chat chi chunk class cls content context
    continuous decode decoder delim delimiter delta detect dp drop dummy each empty encoder end eod eoh eoi eol eom
    eop eos eot eow extra fake fill filler fim first generate generated ignore image img in input invalid k label
    last length level logprob loss mask max mean min n new newline next no null num number of old output pad padding
    per placeholder prefill prefix prev previous prob prompt query reserved response reward role score sep separator
    sequence single skip soi special split start step stop sub suffix sum system target text think thinking tool
    total turn unk unknown unused valid value video vision visual vocab word"""
)
"""What stands before a token of a model's vocabulary or a count of them: 'eos_token', 'loss_per_token'."""

_ABOUT = _set(
    """count dir directory enabled env expiry file filename format host len length location method mode name names path
    paths policy port protocol provider ttl type uri url"""
)
"""As the last word: the value tells about the secret and is none itself, as in 'token_file', 'auth_type'."""


@functools.lru_cache(maxsize=8192)
def looks_secret(key: str) -> bool:
    """Whether the value under this key is to be hidden.

    A dotted key is a path: it is secret if any part is, and a part is read after the one before it, so that
    'wandb.key' is secret like 'wandb_key'.
    """
    before = ""
    for segment in _SEGMENTS.split(key):
        words = [word.lower() for word in _WORDS.findall(segment)]
        if _is_secret_part(segment, before, words):
            return True
        before = words[-1] if words else before
    return False


def _is_secret_part(segment: str, before: str, words: list[str]) -> bool:
    if not words or words[-1] in _ABOUT:
        return False
    if segment.lower() in {"pass", "pw"}:
        return True
    if words[-1] == "key" and segment.isupper() and len(words) > 1:
        return words[-2] not in _DATA_KEYS
    befores = [before, *words]
    return any(_is_secret_word(befores[at], word, is_last=at == len(words) - 1) for at, word in enumerate(words))


def _is_secret_word(before: str, word: str, *, is_last: bool) -> bool:
    if _ALWAYS.fullmatch(word):
        return True
    match word:
        case "token":
            return before in _OWNERS or (is_last and before not in _VOCABULARY)
        case "tokens" | "key" | "keys" | "pat":
            return before in _OWNERS
        case "pass" | "pwd" | "pw":  # not PWD alone: the working directory
            return is_last and before in _PASS_OWNERS
        case _:
            ends = (end for end in ("token", "key", "pwd") if word.endswith(end))
            return any(word.removesuffix(end) in _OWNERS for end in ends)


HIDDEN = "***"

# Each pattern is entered once per run of its characters, so that a megabyte without a secret stays cheap. All are
# strings, which `re` compiles once, at their first use: compiling them takes longer than importing this module.
_SHAPES = (
    (
        r"-----BEGIN[A-Z ]{0,30} PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!---)){0,12000}-----END[A-Z ]{0,40}-----|(?:(?:\\[nr]|\s)*[A-Za-z0-9+/=]{16,})*)",
        HIDDEN,
    ),
    (r"(://[^\s/?#:]*:)[^\s/?#]+@", rf"\1{HIDDEN}@"),
    (r"((?i:https?)://)[^\s/?#:]+@", rf"\1{HIDDEN}@"),  # with git hosts, that is the token
    (r"([?&](?i:key|code|(?:x-\w+-)?sig(?:nature)?)=)[^&\s\"'#]+", rf"\1{HIDDEN}"),
    (r"(hooks\.slack\.com/services/|/api/webhooks/\d+/|/bot\d+:)[\w/-]+", rf"\1{HIDDEN}"),
    (r"(\b(?i:bearer)[ \t]+)(?=[a-z]*[^a-z\s])[^\s\"',;]{8,}", rf"\1{HIDDEN}"),
    (r"((?<!\S)(?:-u|--user|--proxy-user)[ \t=]+[^\s:]+:)(?!\d+\b)[^\s\"']+", rf"\1{HIDDEN}"),
    (
        r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|sk-[\w-]{20,}"
        r"|(?:[sr]k_live|gsk|npm|dckr_pat|shpat|r8|lsv2_[ps]t)_\w{20,}|(?:pypi|nvapi|xai|tvly|pplx)-[\w-]{20,}"
        r"|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
        r"|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*)",
        HIDDEN,
    ),
)
"""What is a secret by its own shape, and what is left of it."""
_MAPPED = r""":(?:[ \t]+(?:(?i:basic|bearer|digest|negotiate|token)[ \t]+)?|(?=\n[ \t]*-[ \t]))"""
_KEY_BEFORE_VALUE = rf"""(?x)
    (?:^|[\n{{,("'\[]|\\[nrt])[ \t]*(?:-[ \t]+)?(?P<entry>[\w.-]++){_MAPPED}  # api_key: abc, Cookie: abc
  | (?<![\w.-])(?:(?<=\\)[nrt](?=\w))?[+~]{{0,2}}(?:         # Hydra writes +key=value, ++key=value, ~key
        (?P<assigned>[\w.-]++)(?:["']\])?(?:=|[ \t]+=[ \t]+)  # HF_TOKEN=abc, --hf-token=abc, password = abc
      | (?P<flag>--?[A-Za-z][\w.-]++)(?:['"],[ \t]*|[ \t]+)(?!['"]?--)  # --hf-token abc, '--hf-token', 'abc'
      | (?<=["'])(?P<quoted>[\w.-]++)\\*["'][ \t]*:[ \t]*     # "hf_token": "abc", also as \"hf_token\": \"abc\"
      | (?P<mapped>(?=[^\W_]*+[_.-])[\w.-]++|(?i:authorization|cookie)){_MAPPED}  # not 'token: ' within a sentence
    )"""
_LAST = r"""(?: [&;,.:)\]}>]{1,4}(?:\s|$|["']) | (?:[&;,]|\\[nrt])[\w.-]+[=:] | (?:\\[nrt])+(?:\s|$|["']))"""
"""What ends a value without quotes: punctuation and then a space, a quotation mark or the next key."""
_STRING = r""""(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'"""
_BRACKETS = rf"""[\[({{](?:[^\[\](){{}}"'] | {_STRING} | [\[({{](?:[^\[\](){{}}"'] | {_STRING})*[\])}}])*[\])}}]"""
_SHELL_VALUE = rf"""(?xs){_BRACKETS} | (?:(?!{_LAST})(?:{_STRING} | ["'][^\n]* | [^\s"']))+"""
_CLAUSE = rf"""(?xs)
    [|>][-+]?[ \t]*(?:\n[ \t]+[^\n]+)+ | (?:\n[ \t]*-[ \t][^\n]+)+ | {_STRING} | {_BRACKETS}
    | (?:(?!{_LAST} | [ \t]+(?:\#|[\w.-]+[=:]))[^\n])+"""
# A quote before a letter closes nothing.
_QUOTED_WORD = {quote: rf"{quote}(?=\w)[^{quote}]*{quote}?[^{quote}]*|[^{quote}]+" for quote in "\"'"}
_WITHIN_QUOTES = {
    quote: rf"""(?x)
    (?:(?!{_LAST})(?:{other}[^{quote}{other}]*{other}?|{quote}(?=\w)[^{quote}]*{quote}?|[^\s{quote}{other}]))+"""
    for quote, other in ("\"'", "'\"")
}
_JSON_VALUE = rf"""(?xs)
    (?i:[bru]){{0,2}}(?:{_STRING} | ["'][^\n]+) | \\+["'][^"'\\]+\\+["'] | {_BRACKETS} | [^\s,"'{{}}\[\]\\]+"""
_NOTHING = r"""(?xi)(?: null|none|true|false|''|""|\[\]|\{\}|\(\)|["']?\$\{[\w.:]+\}["']?
    | an|and|are|as|by|can|for|from|has|if|in|is|it|must|needs|not|of|on|or|that|the|to|was|when|which|with
    )(?:[.,;:)\]}]*(?:\s|$|["'])|[&,;][\w.-]+=)"""
"""Hides no secret: no value at all, a variable's name, or the next word of a sentence ('give --hf-token or log in')."""


def redact(value: Any) -> Any:
    """A deep copy with every secret replaced by '***'; None, booleans, floats and empty values stay.

    Mappings come back as dicts, lists and tuples as lists. Redacting twice changes nothing more.
    """
    return _redact_within("", value)


def _redact_within(parent: str, value: Any) -> Any:
    """`parent` is the key that holds the value: 'key' under 'wandb' is a secret, under 'data' it is none."""
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, Mapping):  # {'name': 'HF_TOKEN', 'value': 'abc'} is how Kubernetes writes a variable
        name = str(value.get("name", parent))
        return {key: _redact_item(name if key == "value" else parent, key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _redact_list(parent, value)
    return value


def _redact_item(parent: str, key: Any, value: Any) -> Any:
    if key == "$pairs" and isinstance(value, list):  # how ConfigValue writes a mapping with other keys than text
        return [_redact_pair(parent, pair) for pair in value]
    name = key if isinstance(key, str) else ""
    if looks_secret(f"{parent}.{name}"):
        return HIDDEN if _hides_something(value) else value
    return _redact_within(name, value)


def _redact_pair(parent: str, pair: Any) -> Any:
    if not isinstance(pair, list) or len(pair) != 2:
        return _redact_within(parent, pair)
    return [pair[0], _redact_item(parent, pair[0], pair[1])]


def _redact_list(parent: str, items: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Words of a command line too: the word after `--hf-token` is the token."""
    after_flag = [False, *(_is_secret_flag(item) for item in items)]
    return [
        HIDDEN if is_value and _is_flag_value(item) else _redact_within(parent, item)
        for is_value, item in zip(after_flag, items, strict=False)
    ]


def _is_secret_flag(item: Any) -> bool:
    return isinstance(item, str) and re.fullmatch(r"--?[A-Za-z][\w.-]+", item) is not None and looks_secret(item)


def _is_flag_value(item: Any) -> bool:
    return isinstance(item, str) and item != "" and not item.startswith("--")


def _hides_something(value: Any) -> bool:
    if value is None or isinstance(value, bool | float):
        return False
    return isinstance(value, int) or bool(value)


def _redact_text(text: str) -> str:
    if len(text) < 4:
        return text
    for pattern, shown in _SHAPES:
        text = re.sub(pattern, shown, text)
    return _redact_keyed(text)


def _redact_keyed(text: str) -> str:
    """The text with the values after secret keys hidden."""
    pieces: list[str] = []
    done = scanned = 0
    quote = ""
    for found in re.finditer(_KEY_BEFORE_VALUE, text):
        form = found.lastgroup or ""
        if found.start() < done or not looks_secret(found[form]):
            continue
        quote, scanned = _quote_open_at(found.start(), text, scanned, quote), found.start()
        is_quoted = form == "quoted" or text[found.end(form)] in _QUOTED_WORD
        pattern = _JSON_VALUE if is_quoted else _word_value(text, found, quote)
        value = re.compile(pattern).match(text, found.end())
        if value and not re.compile(_NOTHING).match(text, found.end()):
            pieces += [text[done : found.end()], f'"{HIDDEN}"' if is_quoted else HIDDEN]
            done = scanned = value.end()
    return "".join([*pieces, text[done:]])


def _quote_open_at(end: int, text: str, start: int, quote: str) -> str:
    """The quotation mark that is open at `end`, or ''; `quote` is the one at `start`. Apostrophes don't count."""
    for found in re.compile("[\"']").finditer(text, start, end):
        before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
        if quote == found[0] and not after.isalnum():
            quote = ""
        elif not quote and not before.isalnum():
            quote = found[0]
    return quote


def _word_value(text: str, key: re.Match[str], quote: str) -> str:
    """The pattern of how far an unquoted value goes.

    To the closing quote, if the quotes are around key and value alone; to a space or the closing quote, if they are
    around more words; to the end of the clause, for an entry of YAML; else like a word of a shell, which may have
    quotes in it.
    """
    start = key.start("entry") if key["entry"] else key.start()
    around = text[start - 1 : start]
    if around in _QUOTED_WORD:
        return _QUOTED_WORD[around]
    if key["entry"] and not quote:
        return _CLAUSE
    is_within = quote and text[key.end() : key.end() + 1] != quote
    return _WITHIN_QUOTES[quote] if is_within else _SHELL_VALUE


def redacted_text(value: Any) -> Any:
    """A string without secrets and without lone surrogates, which no store takes; other values as they are."""
    return redact(_storable(value)) if isinstance(value, str) else value


def redacted_data(value: Any) -> Any:
    """A mapping as JSON values without secrets. A value that JSON lacks becomes its text, so none is refused."""
    if not isinstance(value, Mapping):
        return value
    text = json.dumps(dict(value), default=str, ensure_ascii=False, skipkeys=True)
    return redact(json.loads(_storable(text), parse_constant=str))


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


RedactedText = Annotated[str, BeforeValidator(redacted_text)]
RedactedData = Annotated[dict[str, JsonValue], BeforeValidator(redacted_data)]

"""Which keys name a secret, judged by their words.

A training config is full of tokens, keys and passes that are no secrets: `max_tokens`, `eos_token`,
`prompt_key`, `forward_pass`. So a key is cut into words (`HF_TOKEN`, `hfToken` and `hf-token` are all
'hf', 'token') and the words around the doubtful one decide. Where they don't, it is a secret: a hidden
value in a status costs less than a shown one. The lists were tried on every key of verl and OpenRLHF.
"""

from __future__ import annotations

import functools
import re


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
    """
    access account api app auth authorization aws azure bearer bot client cloud csrf db deploy deployment
    discord docker encryption gcp git gitea github gitlab gpg hf hmac hub hugging huggingface jupyter jwt
    kaggle license login master mlflow modelscope my npm oauth openai personal pgp private pypi redis
    refresh registry root secret security service session shared signing slack ssh ssl storage swanlab
    telegram tls vault wandb webhook
    """
)
"""What a secret key or token belongs to: 'signing_key', 'hf_token_2024'."""

_PASS_OWNERS = _OWNERS | _set("admin database email ftp http https mail mysql pg proxy smtp user")

_VOCABULARY = _set(
    """
    action add any assistant audio balance base begin beginning bos by chat chi chunk class cls content
    context decode decoder delim delimiter delta detect dp drop dummy each empty encoder end eod eoh eoi
    eol eom eop eos eot eow extra fake fill filler fim first generate generated ignore image img in input
    invalid k label last length level logprob loss mask max mean min n new newline next no null num number
    of old output pad padding per placeholder prefill prefix prev previous prob prompt query reserved
    response reward role score sep separator sequence single skip soi special split start step stop sub
    suffix sum system target text think thinking tool total turn unk unknown unused valid value video
    vision visual vocab word
    """
)
"""What stands before a token of a model's vocabulary or a count of them: 'eos_token', 'loss_per_token'."""

_ABOUT = _set(
    """
    count dir directory enabled env expiry file filename format host len length location method mode name
    names path paths policy port protocol provider ttl type uri url
    """
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
    befores = [before, *words]
    return any(_is_secret_word(befores[at], word, is_last=at == len(words) - 1) for at, word in enumerate(words))


def _is_secret_word(before: str, word: str, *, is_last: bool) -> bool:
    if _ALWAYS.fullmatch(word):
        return True
    match word:
        case "token":
            return before in _OWNERS or (is_last and before not in _VOCABULARY)
        case "tokens" | "key" | "keys":
            return before in _OWNERS
        case "pass" | "pwd" | "pw":  # not PWD alone: the working directory
            return is_last and before in _PASS_OWNERS
        case _:
            ends = (end for end in ("token", "key", "pwd") if word.endswith(end))
            return any(word.removesuffix(end) in _OWNERS for end in ends)

"""What is shown holds no secret, whatever shape it was written in."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redaction_corpus import HARMLESS, SECRETS, Secret

from dlrl_core.context import looks_secret, redact
from dlrl_core.spec import ConfigValue

TEXTS = [
    # URLs
    ("redis://user:hunter2@host:6379/0", "redis://user:***@host:6379/0"),
    ("redis://:hunter2@host", "redis://:***@host"),
    ("see postgres://u:p@ss@h/db and http://a:b@c/", "see postgres://u:***@h/db and http://a:***@c/"),
    ("https://ghp_short@github.com/org/repo", "https://***@github.com/org/repo"),
    ("redis://user:@host", "redis://user:@host"),
    ("ssh://git@github.com/x", "ssh://git@github.com/x"),
    ("http://host:8080/path?mail=a@b", "http://host:8080/path?mail=a@b"),
    ("s3://bucket/key", "s3://bucket/key"),
    # words of a command line
    ("--hf-token=abc --lr=1", "--hf-token=*** --lr=1"),
    ("--hf-token abc --lr 1", "--hf-token *** --lr 1"),
    ("--logger.wandb.key abc", "--logger.wandb.key ***"),
    ("--hf-token --lr 1", "--hf-token --lr 1"),
    ("HF_TOKEN=abc python train.py", "HF_TOKEN=*** python train.py"),
    ("HF_TOKEN= python train.py", "HF_TOKEN= python train.py"),
    ("HF_TOKEN='' HF_TOKEN=\"\"", "HF_TOKEN='' HF_TOKEN=\"\""),
    ("HF_TOKEN='a b' x", "HF_TOKEN=*** x"),
    ("'password=a b' x", "'password=***' x"),
    ("+trainer.wandb.api_key=abc lr=1", "+trainer.wandb.api_key=*** lr=1"),
    ("data.max_tokens=5 tokenizer=abc eos_token=<eos>", "data.max_tokens=5 tokenizer=abc eos_token=<eos>"),
    ("password = abc", "password = ***"),
    ('say "token=a b" and password=abc "', 'say "token=***" and password=*** "'),
    ("https://h/p?user=me&token=abc", "https://h/p?user=me&token=***"),
    ("AccountName=x;AccountKey=abc==;y=1", "AccountName=x;AccountKey=***;y=1"),
    # structures written as text
    ('{"password":"abc","user":"me"}', '{"password":"***","user":"me"}'),
    ("{'HF_TOKEN': 'abc', 'lr': 1}", "{'HF_TOKEN': \"***\", 'lr': 1}"),
    ('{"token": null, "use_auth": true, "secret": ""}', '{"token": null, "use_auth": true, "secret": ""}'),
    (
        "Command '['python', '--hf-token', 'abc']' returned 1",
        "Command '['python', '--hf-token', \"***\"]' returned 1",
    ),
    ('{"env": "{\\"HF_TOKEN\\": \\"abc\\"}"}', '{"env": "{\\"HF_TOKEN\\": "***"}"}'),
    # by their own shape
    ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
    (f"login with hf_{'a' * 34} failed", "login with *** failed"),
    # several problems in one message: only the value goes
    (
        "'+data.continuous_token.enable=True' is unknown; 'lr' must be a number, not 'x'",
        "'+data.continuous_token.enable=True' is unknown; 'lr' must be a number, not 'x'",
    ),
    (
        "'++data.hf_token=a b' is unknown; 'lr' must be a number, not 'x'",
        "'++data.hf_token=***' is unknown; 'lr' must be a number, not 'x'",
    ),
    ("+data.continuous_token.enable=true: unknown; see 'x'", "+data.continuous_token.enable=true: unknown; see 'x'"),
    (
        "can't run 'python t.py HF_TOKEN=abc': no 'x' and no 'y'",
        "can't run 'python t.py HF_TOKEN=***': no 'x' and no 'y'",
    ),
    ("'t.py --hf-token abc', but 'y' isn't", "'t.py --hf-token ***', but 'y' isn't"),
    ("sh -c \"t.py HF_TOKEN='a b' x HF_TOKEN=a'b c'\" and 'y'", "sh -c \"t.py HF_TOKEN=*** x HF_TOKEN=***\" and 'y'"),
    ("the word 'password=' is empty; 'x'", "the word 'password=' is empty; 'x'"),
    ("'+password='abc'' and 'x'", "'+password=***' and 'x'"),
    ("HF_TOKEN=a'b c'\" d\" e", "HF_TOKEN=*** e"),
    # sentences stay whole
    ("unexpected token: '}' at line 3", "unexpected token: '}' at line 3"),
    ("workload 'actor-3' sent no report for 42 s", "workload 'actor-3' sent no report for 42 s"),
    ("", ""),
]

VALUES: list[tuple[Any, Any]] = [
    ({"HF_TOKEN": "abc", "lr": 1e-5}, {"HF_TOKEN": "***", "lr": 1e-5}),
    ({"a": [{"password": 1234}]}, {"a": [{"password": "***"}]}),
    ({"secrets": {"x": "y"}, "auth": ["a"]}, {"secrets": "***", "auth": "***"}),
    (
        {"token": None, "password": "", "secret": [], "auth": False, "credential": {}},
        {"token": None, "password": "", "secret": [], "auth": False, "credential": {}},
    ),
    (
        {"logger": {"wandb": {"key": "abc"}}, "data": {"key": "x"}},
        {"logger": {"wandb": {"key": "***"}}, "data": {"key": "x"}},
    ),
    (["--hf-token", "abc", "--lr", "1"], ["--hf-token", "***", "--lr", "1"]),
    (["--hf-token=abc"], ["--hf-token=***"]),
    (("a", 1), ["a", 1]),
    ({1: "x", "m": {"password": b"abc"}}, {1: "x", "m": {"password": "***"}}),
    ("redis://u:p@h", "redis://u:***@h"),
    (5, 5),
    (None, None),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_secret_in_a_text_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(("value", "shown"), VALUES)
def test_secret_in_a_structure_is_hidden_and_the_rest_stays(value: Any, shown: Any) -> None:
    assert redact(value) == shown


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_secret_of_the_corpus_is_hidden_and_the_rest_stays(secret: Secret) -> None:
    shown = redact(secret.value)

    texts = [str(shown), json.dumps(shown)]
    assert not [piece for piece in secret.hidden if any(piece in text for text in texts)]
    assert not [piece for piece in secret.kept if piece not in texts[1]]


@pytest.mark.parametrize("value", HARMLESS, ids=repr)
def test_harmless_value_of_the_corpus_is_left_alone(value: Any) -> None:
    assert redact(value) == value


def test_corpus_has_200_secrets_in_12_shapes_and_200_harmless_values() -> None:
    assert (len(SECRETS), len({secret.shape for secret in SECRETS}), len(HARMLESS)) == (200, 12, 200)


def test_original_is_left_alone() -> None:
    value = {"a": {"token": "abc"}, "b": ["x"]}

    shown = redact(value)
    shown["b"].append("y")

    assert value == {"a": {"token": "abc"}, "b": ["x"]}


def test_config_with_keys_other_than_text_is_redacted_too() -> None:
    encoded = ConfigValue.of({1: "one", "api_key": "hunter2", "$x": {"$y": {"token": "hunter2"}}}).encoded

    assert "hunter2" not in json.dumps(redact(encoded))
    assert "one" in json.dumps(redact(encoded))


@pytest.mark.parametrize(
    "piece",
    [
        *["a", "://", "a:", "--token ", "'token", "token=", "token='", "' token=", "x@", "://a:", '"token": "\\'],
        *["api_key: ", "token: a\n", "- ", "token=[", "token=[(", "token=,", "token=a,", "token=.", "\\n", "-u a:"],
        *["-----BEGIN PRIVATE KEY-----", "?sig=", "eyJaaaaaaaa.", "a_", "token: |\n ", "token: a b "],
    ],
)
def test_long_text_costs_time_in_proportion(piece: str) -> None:
    """A pattern that looks at a megabyte again and again would stop the Master."""
    text = piece * (200_000 // len(piece))

    start = time.process_time()
    redact(text)

    assert time.process_time() - start < 2.0


PIECES = st.sampled_from(
    [
        *"""'"=:@/?#,-. {}[]*\\""",
        "://",
        "--",
        ": ",
        "\n",
        "\\n",
        "api_key",
        "${A}",
        "-----BEGIN PRIVATE KEY-----",
        "***",
        "token",
        "HF_TOKEN",
        "--hf-token",
        "password",
        "lr",
        "http",
        "Bearer ",
        "null",
    ]
)
TRICKY = st.lists(PIECES | st.text(max_size=3), max_size=14).map("".join)
KEYS = st.sampled_from(["lr", "token", "HF_TOKEN", "password", "wandb", "key", "$pairs", "secrets"]) | st.text(
    max_size=4
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(TRICKY)
@settings(max_examples=120, deadline=None)
def test_redacting_a_text_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(JSON)
@settings(max_examples=80, deadline=None)
def test_redacting_a_structure_twice_changes_nothing_more(value: Any) -> None:
    once = redact(value)

    assert redact(once) == once
    json.dumps(once)


@given(
    key=st.sampled_from(["HF_TOKEN", "api_key", "wandb-api-key", "db_password", "secret"]),
    wrap=st.lists(st.sampled_from(["list", "dict"]), max_size=4),
    form=st.sampled_from(["mapping", "{key}={secret}", "--{key}={secret}", "--{key} {secret}", "x://{key}:{secret}@h"]),
)
@settings(max_examples=50, deadline=None)
def test_planted_secret_is_nowhere_in_what_is_shown(key: str, wrap: list[str], form: str) -> None:
    assert looks_secret(key)
    value: Any = {key: "hunter2"} if form == "mapping" else form.format(key=key, secret="hunter2")
    for kind in wrap:
        value = [value, 1] if kind == "list" else {"inner": value}

    assert "hunter2" not in json.dumps(redact(value))

"""A launch script in the way of verl's examples is read as bash would run it. More about scripts: tests/openrlhf_config."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from verl_sources import MODULE, SMALL, job_of, needs_verl, read_words

from dlrl_core.errors import SpecError
from dlrl_verl.config.command import command_of

FAKE = r"""
python3() { [ "$1" = -c ] && return 1; printf '%s\0' "$@" >> "$SEEN"; }
uv() { while [ "$1" != python3 ]; do shift; done; "$@"; }
tee() { cat > /dev/null; }
"""
"""Functions for bash that note the words of the training command instead of running anything."""

SNIPPETS = {
    "case": 'case "${D:-gpu}" in\n  gpu)\n    A=1\n    ;;\n  npu) A=2 ;;\n  *) echo no >&2; exit 1 ;;\nesac\npython3 -m M a=$A',
    "case with an empty branch": "D=npu\ncase $D in\n gpu)\n ;;\n npu|x)\n A=2;;\nesac\npython3 -m M a=$A",
    "case on one line": "D=b; case $D in a) A=1;; b) A=2;; esac; python3 -m M a=$A",
    "case with patterns": 'D=gpu4\ncase "$D" in "gpu*") A=1;; gpu?) A=2;; esac\npython3 -m M a=$A',
    "case in a case": "D=a; E=y\ncase $D in\na)\n  case $E in x) A=1;; y) A=2;; esac;;\nb) A=3;;\nesac\npython3 -m M a=$A",
    "case without a match": "A=0; D=z; case $D in a) A=1;; esac; python3 -m M a=$A",
    "is a module there": "D=${D:-$(python3 -c 'import no_such_npu' 2>/dev/null && echo npu || echo gpu)}\npython3 -m M d=$D",
    "or in a condition": 'B=two\nif [ "$B" = one ] || [ "$B" = two ]; then A=1; fi\npython3 -m M a=$A',
    "group in a condition": 'B=two\nif [ -n "$B" ] && { [ $B = one ] || [ $B = two ]; }; then A=1; else A=2; fi\npython3 -m M a=$A',
    "group that does not hold": 'B=3\nif [ -n "$B" ] && { [ $B = one ] || [ $B = two ]; }; then A=1; else A=2; fi\npython3 -m M a=$A',
    "elif after or": "B=2\nif [ $B = 1 ] || [ $B = 2 ]; then A=1; elif [ $B = 2 ] || [ $B = 3 ]; then A=2; fi\npython3 -m M a=$A",
    "not and": "! [ -d /no/such ] && A=1\npython3 -m M a=$A",
    "launcher in an array": 'L=(python3)\nif [ "${UV:-1}" != 0 ]; then L=(uv run --extra vllm python3); fi\n"${L[@]}" -m M a=1',
    "arrays": 'set -xeuo pipefail\nA=(\n  a.b=1\n  # no=1\n  c.d="[\'x y\', \'z\']"\n)\nA+=(+e.f=2)\npython3 -m M "${A[@]}" "$@"',
    "keys in variables": 'K=a.b\nA=("${K}.c=1" "+${K}.d=[x]")\npython3 -m M "${A[@]}"',
    "quotes within a value": "python3 -m M a='[\"console\",\"wandb\"]' b=['console'] c=\"{x: 1}\"",
    "joined texts": "A='{a:{},'\\\n'b:{}}'\npython3 -m M a=$A",
    "piped": "python3 -m M a=1 2>&1 | tee logs/x.log",
}  # fmt: skip


def bash_words(script: Path, *arguments: str) -> list[str]:
    """The words that python3 gets when bash runs the script."""
    seen = script.with_suffix(".seen")
    env = {"HOME": "/home/me", "SEEN": str(seen), "PATH": os.environ["PATH"], "BASH_ENV": str(script.parent / "fake")}
    (script.parent / "fake").write_text(FAKE)
    command = ["bash", str(script), *arguments]
    subprocess.run(command, env=env, cwd=script.parent, capture_output=True, timeout=20, check=False)
    words = seen.read_text().split("\0")[:-1]
    return words[words.index(MODULE) + 1 :]


def write(folder: Path, text: str) -> str:
    (folder / "train.sh").write_text(text.replace("-m M", f"-m {MODULE}"))
    return str(folder / "train.sh")


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A folder to be in, with an environment that is known."""
    monkeypatch.chdir(tmp_path)
    for name in ("A", "B", "D", "UV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_script_has_the_words_that_bash_would_give(name, at_home):
    script = write(at_home, SNIPPETS[name])

    ours = [word.text for word in command_of(("bash", script, "x.y=one", "z=two words")).flags]

    assert ours == bash_words(Path(script), "x.y=one", "z=two words")


@pytest.mark.parametrize(
    "before",
    [
        "python3 -m {}",
        "python3 verl/trainer/main_ppo.py",
        "ray job submit --no-wait -- python3 -m {}",
        "uv run --extra vllm python3 -m {}",
    ],
)
def test_a_command_line_is_taken_from_its_module_on(before):
    words = command_of((*before.format(MODULE).split(), "--config-name=x", "a.b=1")).flags

    assert [word.text for word in words] == ["--config-name=x", "a.b=1"]


def test_what_a_script_exports_becomes_the_environment_of_the_job(at_home):
    script = write(at_home, "export CUDA_DEVICE_MAX_CONNECTIONS=1 RAY_ADDRESS=x\nA=1 python3 -m M a=1")

    assert command_of((script,)).env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "A": "1"}


def test_overrides_that_a_comment_cut_off_are_told(at_home, caplog):
    command_of((write(at_home, "python3 -m M a.b=1 \\\n# c.d=2 \\\ne.f=3"),))

    assert "'e.f=3' (train.sh:3) stands alone: a comment or a blank cut its command off" in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("case $(hostname) in\na) A=1;;\nesac\npython3 -m M a=$A", "'a=...' (train.sh:4) needs $A as of line 2"),
        ("case $(hostname) in\na) python3 -m M a=1;;\nesac", "(train.sh:2, it stands in a case (line 1))"),
        ("V=$(git rev-parse HEAD)\npython3 -m M a=$V", "write the value out, or pass the overrides themselves"),
        ("echo hello", f"does not run {MODULE}; pass the overrides themselves"),
        (
            "python3 -m recipe.dapo.main_dapo a=1",
            f"does not run {MODULE}; it runs recipe.dapo.main_dapo (train.sh:1), and dlrl runs {MODULE} alone",
        ),
    ],
)
def test_what_would_take_running_the_script_is_an_error_that_names_the_line(text, problem, at_home):
    with pytest.raises(SpecError) as caught:
        command_of(("bash", write(at_home, text)))

    assert problem in str(caught.value)


@needs_verl
def test_an_unknown_key_is_named_with_the_line_on_which_it_is_written(at_home):
    script = write(at_home, 'A=(\n  data.shuffle=True\n  trainer.nnods=2\n)\npython3 -m M "${A[@]}"')

    with pytest.raises(SpecError, match=r"unknown key 'trainer.nnods' \(train.sh:3\); did you mean 'trainer.nnodes'\?"):
        read_words("bash", script)


@needs_verl
def test_a_script_gives_a_job_with_its_environment(at_home):
    script = write(at_home, f"export MINE=1\npython3 -m M {' '.join(SMALL)} trainer.n_gpus_per_node=$1")

    spec = job_of(["bash", script, "2"]).spec

    assert (spec.device_per_node, spec.global_env["MINE"]) == (2, "1")

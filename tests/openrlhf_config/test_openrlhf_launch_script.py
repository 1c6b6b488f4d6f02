"""A launch script is read as bash would run it, and nothing of it is run."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openrlhf_sources import DATA, MODULE, job_of, read_words

from dlrl_core import RLJobBuilder, RoleType
from dlrl_core.errors import SpecError
from dlrl_openrlhf.config import RUNTIME_ENV, flat
from dlrl_openrlhf.config.command import training_command

FAKE = r"""
python3() { printf '%s\0' "$@" >> "$SEEN"; }
ray() { [ "$1" = job ] && while [ "$1" != -- ]; do shift; done && shift && "$@"; }
srun() { while [ "$1" != bash ]; do shift; done; eval "$3"; }
pip() { :; }
scontrol() { :; }
sleep() { :; }
"""
"""Functions for bash that note the words of the training command instead of running anything."""

SNIPPETS = {
    "quotes": """python3 -m M --a "x y" 'p $HOME "q"' --b \\$x "a\\"b" a'b'"c" """,
    "continuations": "python3 -m M --a 1 \\\n   --b 2 \\\n--c 3",
    "comments": "# python3 -m M --no\npython3 -m M --a 1 # --b 2\n# --c",
    "a comment ends a command": "python3 -m M --a 1 \\\n # --b 2 \\\n--c 3 2>/dev/null",
    "a hash within a word": "python3 -m M --a x#y '#z'",
    "variables": 'A=1; B="two words"; C=$A$B\npython3 -m M $A ${B} "${B}" "$C" x${A}y$NONE',
    "split and joined": 'A=" p  q "; python3 -m M x$A$A"$A"z',
    "defaults": 'E=\npython3 -m M ${X:-1} ${X-2} ${E:-3} "${E-4}" ${HOME:+5} ${X:+6} ${Y:=7} $Y',
    "default of a variable": 'A=a; python3 -m M ${X:-$A/b} "${X:-c d}"',
    "arguments": 'python3 -m M $# $1 "$2" ${3:-x} "$@" $*',
    "set and shift": 'shift; python3 -m M "$@"; ',
    "new arguments": 'set -- a "b c"; python3 -m M "$@" $#',
    "arrays": 'A=(1 "2 3" # no\n four)\nA+=(5)\npython3 -m M ${A[@]} "${A[@]}" ${A[1]} "x${A[@]}y" "${A[*]}"',
    "empty array": 'A=()\npython3 -m M "${A[@]}" ${A[@]} z',
    "appended text": "A=1; A+=2; python3 -m M $A",
    "arithmetic": "N=6; python3 -m M $((N)) $(( $N / 4 + 2*3 )) $((-N % 4)) $((UNSET + 1))",
    "own folder": 'D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\npython3 -m M $D `basename $0 .sh`',
    "own folder, two above": 'D=$(cd -- "$(dirname "${BASH_SOURCE[0]}")/../.." >/dev/null 2>&1 && pwd)\npython3 -m M $D',
    "cd with dashes": "cd -- /usr/share; python3 -m M $PWD",
    "a variable that must be set, and is": "A=1; : ${A:?must set}; python3 -m M ${A:?}",
    "folders": 'cd /usr/share; python3 -m M "$(pwd)" $PWD "$(realpath ../lib/x)" "$(dirname a/b/)" $(dirname a)',
    "echo and date": 'python3 -m M "$(echo  a  b)" $(date +%Y) ',
    "heredoc": "read -r -d '' A <<EOF\n--a $HOME \\\n  --b \"q\" \\$x\nEOF\npython3 -m M $A",
    "raw heredoc": "read -r -d '' A <<'EOF'\n--a $HOME\nEOF\npython3 -m M $A",
    "heredoc of cat": 'A=$(cat <<EOF\n--a 1\n--b 2\nEOF\n)\npython3 -m M $A "$A"',
    "redirections": "python3 -m M --a 1 >/dev/null 2>&1 --b 2 &> /dev/null",
    "pipe": "python3 -m M --a 1 2>&1 | cat",
    "line breaks in quotes": "python3 -m M \"a\nb\" 'c\nd' $'e\\nf\\'g'",
    "if": 'if [ -z "$X" ]; then A=1; else A=2; fi\nif [[ $1 == one && -n $1 ]]; then B=1; fi\npython3 -m M $A $B',
    "elif": 'if [ "$1" = two ]; then A=1\nelif test $# -ge 2; then A=2\nelse A=3\nfi\npython3 -m M $A',
    "not": "if ! [[ -d /no/such ]]; then python3 -m M yes; else python3 -m M no; fi",
    "pattern": "if [[ one == o* ]]; then A=1; fi; python3 -m M $A",
    "and, or": '[ -n "$X" ] && A=1\n[ -z "$X" ] || A=2\n[ -z "$X" ] && A=3\npython3 -m M $A; true || python3 -m M no',
    "exit": "python3 -m M 1\nexit 0\npython3 -m M 2",
    "eval": "C='python3 -m M \"a b\"'\neval $C",
    "bash -c": 'A=1; srun -w x bash -c "pip install y \\\n && python3 -m M $A \\$A"',
    "exported in front": "A=1 B=2 python3 -m M x",
    "group": "{ A=1; python3 -m M $A; }",
    "tilde": 'python3 -m M ~/x "~/y" a~ z',
    "dollar": 'python3 -m M $ "$" a$ "100%" $.x',
    "braces": "python3 -m M {wandb_token} a=b,c",
    "ray job": """ray job submit --runtime-env-json='{"a": "b c"}' --no-wait -- python3 -m M --a 1""",
    "windows line ends": "A=1\r\npython3 -m M --a \\\n 1",
}


def bash_words(script: Path, *arguments: str) -> list[str]:
    """The words that python3 gets when bash runs the script."""
    seen = script.with_suffix(".seen")
    env = {"HOME": "/home/me", "SEEN": str(seen), "PATH": os.environ["PATH"], "BASH_ENV": str(script.parent / "fake")}
    (script.parent / "fake").write_text(FAKE)
    command = ["bash", str(script), *arguments]
    subprocess.run(command, env=env, cwd=script.parent, capture_output=True, timeout=20, check=False)
    words = seen.read_text().split("\0")[:-1] if seen.exists() else [MODULE]
    return words[words.index(MODULE) + 1 :]


def our_words(*words: str) -> list[str]:
    return [word.text for word in training_command(words).flags]


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A folder to be in, with an environment that is known."""
    monkeypatch.chdir(tmp_path)
    for name in ("X", "Y", "NONE", "UNSET", "WANDB_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    return tmp_path


def write(folder: Path, text: str, name: str = "train.sh") -> str:
    (folder / name).write_text(text.replace("-m M", f"-m {MODULE}"))
    return str(folder / name)


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_script_has_the_words_that_bash_would_give(name, at_home):
    script = write(at_home, SNIPPETS[name])

    assert our_words("bash", script, "one", "two words") == bash_words(Path(script), "one", "two words")


@pytest.mark.parametrize("name", ["arrays.sh", "heredoc.sh", "slurm.sh"])
def test_a_whole_script_has_the_words_that_bash_would_give(name, at_home):
    script = at_home / "examples" / "scripts" / name
    script.parent.mkdir(parents=True)
    script.write_text((DATA / name).read_text())

    words = our_words("bash", str(script))

    assert len(words) > 10
    assert words == bash_words(script)


@pytest.mark.parametrize(
    "command",
    [["bash", "{}"], ["{}"], ["sh", "-ex", "{}", "argument"], ["source", "{}"]],
    ids=" ".join,
)
def test_a_script_is_named_as_one_would_run_it(command, at_home):
    script = write(at_home, "python3 -m M --a 1")

    assert our_words(*(word.format(script) for word in command)) == ["--a", "1"]


def test_a_script_can_be_given_as_a_path_or_as_text(at_home):
    for source in (DATA / "heredoc.sh", f"bash {DATA / 'heredoc.sh'} 2"):
        job = RLJobBuilder().framework("openrlhf").config(source).build()
        assert job.spec.role(RoleType.ACTOR).total == 2


def test_the_arguments_of_a_script_count(at_home):
    assert job_of("bash", str(DATA / "heredoc.sh"), "4").spec.role(RoleType.CRITIC).total == 2


def test_a_text_with_line_continuations_is_a_command(at_home):
    """Python's shlex leaves the line breaks as words."""
    text = f"python3 -m {MODULE} \\\n  --actor.model_name_or_path m \\\n--data.prompt_dataset d \\\n "
    job = RLJobBuilder().framework("openrlhf").config(text + "--reward.remote_url f.py --vllm.num_engines 1").build()

    assert job.spec.role(RoleType.ROLLOUT).total == 1


@pytest.mark.parametrize(
    "before",
    [
        "python3 -m {}",
        "python -u -m {}",
        "/opt/venv/bin/python3.11 openrlhf/cli/train_ppo_ray.py",
        "ray job submit --address=http://x:8265 --no-wait -- python3 -m {}",
        "torchrun --nproc_per_node 1 -m {}",
        "env A=1 python3 -m {}",
    ],
)
def test_a_command_line_is_taken_from_its_module_on(before):
    assert our_words(*before.format(MODULE).split(), "--a", "1") == ["--a", "1"]


# ---- what else a script says


def test_variables_of_the_ray_job_become_those_of_the_job():
    spec = job_of("bash", str(DATA / "arrays.sh")).spec

    assert {"NCCL_DEBUG": "WARN", "WANDB_API_KEY": "hunter2"}.items() <= spec.global_env.items()


def test_variables_of_a_file_for_the_ray_job_count_too(at_home):
    (at_home / "env.yaml").write_text("env_vars: {A: 1}\nworking_dir: /code\n")
    script = write(at_home, "ray job submit --runtime-env env.yaml -- python3 -m M --a 1")

    assert training_command((script,)).env == {"A": "1"}


def test_what_a_script_exports_to_python_becomes_the_environment_of_the_job():
    config = read_words("bash", str(DATA / "heredoc.sh"))

    assert config[RUNTIME_ENV] == {"env_vars": {"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1"}}


def test_exports_do_not_reach_a_ray_job_nor_do_those_that_place_processes(at_home):
    job = write(at_home, "export A=1\nray job submit -- python3 -m M --a 1")
    direct = write(at_home, "export A=1 CUDA_VISIBLE_DEVICES=0 PATH=/x RAY_ADDRESS=y\npython3 -m M --a 1", "direct.sh")

    assert training_command((job,)).env == {}
    assert training_command((direct,)).env == {"A": "1"}


def test_variables_come_from_files_that_the_script_sources(at_home):
    write(at_home, "MODEL=m\n", "env.sh")
    script = write(at_home, 'source ./env.sh\n. no/such\npython3 -m M --a "$MODEL"')

    assert our_words(script) == ["--a", "m"]


def test_what_a_heredoc_and_the_environment_say_is_in_the_config(monkeypatch):
    monkeypatch.setenv("WANDB_KEY", "hunter2")

    config = flat(read_words("bash", str(DATA / "heredoc.sh")))

    assert config["logger.wandb.key"] == "hunter2"
    assert (config["data.max_len"], config["rollout.max_new_tokens"]) == (768, 256)


def test_nothing_of_a_script_is_run(at_home):
    script = write(at_home, "touch ran\nX=$(touch ran)\n`touch ran`\neval 'touch ran'\npython3 -m M --a 1")

    assert our_words(script) == ["--a", "1"]
    assert not (at_home / "ran").exists()


# ---- what can't be read


def problem_of(folder: Path, text: str) -> str:
    with pytest.raises(SpecError) as caught:
        training_command(("bash", write(folder, text)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "V=$(git rev-parse  HEAD)\n\npython3 -m M \\\n --ckpt.path runs/$V",
            "'runs/...' (train.sh:4) needs $(git rev-parse HEAD) of line 1, and dlrl reads a script without running it; "
            "write the value out, or pass the flags themselves",
        ),
        ("A=x.y\npython3 -m M ${A%.y}", "'...' (train.sh:2) needs ${A%.y}, and dlrl reads"),
        ("A=(1 2)\nI=1\npython3 -m M ${A[$I]}", "'...' (train.sh:3) needs ${A[$I]}, and dlrl reads"),
        ("for L in 1 2; do\n A=$L\ndone\npython3 -m M $A", "'...' (train.sh:4) needs $A as of line 2"),
        ("read -p who? N\npython3 -m M $N", "'...' (train.sh:2) needs $N as of line 1"),
        (
            "for L in 1 2; do\n  python3 -m M $L\ndone",
            f"it can't be told without running 'train.sh' which {MODULE} it runs (train.sh:2, it stands in a loop (line 1)"
            "); pass the flags themselves",
        ),
        ("if nvidia-smi; then\npython3 -m M 1\nfi", "(train.sh:2, it stands in a condition (line 1))"),
        ("go() {\npython3 -m M 1\n}\ngo", "(train.sh:2, it stands in a function (line 1))"),
        ("function go {\npython3 -m M 1\n}\ngo", "(train.sh:2, it stands in a function (line 1))"),
        (
            "if x; then\npython3 -m M 1\nfi\npython3 -m M 2",
            "(train.sh:2, it stands in a condition (line 1); train.sh:4)",
        ),
        (
            "case $X in\na) python3 -m M 1;;\nesac",
            "(train.sh:2, it stands in a case (line 1) on '$X', which is not set)",
        ),
        (
            "if [ $X -eq 0 ]; then\npython3 -m M 1\nfi",
            "(train.sh:2, it stands in a condition (line 1) on '$X', which is not set); pass the flags themselves",
        ),
        (
            '[ "$X" -eq 0 ] && python3 -m M 1',
            "(train.sh:1, the command before it (line 1) decides on '$X', which is not set)",
        ),
        (
            'if [ "$X" = 0 ]; then\npython3 -m M 1\nfi',
            "does not run openrlhf.cli.train_ppo_ray; it is not reached (train.sh:2, it stands in a condition (line 1) on "
            "'$X', which is not set): set the variables that decide, or pass the flags themselves",
        ),
        ('[ "$X" = 0 ] && python3 -m M 1', "(train.sh:1, the command before it decides on '$X', which is not set)"),
        (
            "python3 -m M ${X:?must set}",
            "the launch script needs '$X' (train.sh:1), which is not set: must set; set it, or pass the flags themselves",
        ),
        (': "${X:?}"\npython3 -m M 1', "the launch script needs '$X' (train.sh:1), which is not set; set it, or pass"),
        ("[[ $(hostname) == a ]] && python3 -m M 1", "(train.sh:1, the command before it (line 1) decides)"),
        ("python3 -m M 1\npython3 -m M 2", "runs openrlhf.cli.train_ppo_ray 2 times (train.sh:1; train.sh:2)"),
        ("echo hello", "does not run openrlhf.cli.train_ppo_ray; pass the flags themselves"),
        ("python3 -m openrlhf.cli.train_sft --a 1", "; it runs openrlhf.cli.train_sft (train.sh:1), and dlrl runs"),
        (
            "torchrun tools/mine.py\nbash more.sh",
            "; it runs tools/mine.py (train.sh:1), more.sh (train.sh:2), and dlrl runs",
        ),
        ("pkill -f openrlhf.cli.train_ppo_ray", "does not run openrlhf.cli.train_ppo_ray; pass the flags themselves"),
        (
            "ray job submit --runtime-env-json '{' -- python3 -m M",
            "'--runtime-env-json' (train.sh:1) is not an object with 'env_vars'",
        ),
    ],
)
def test_what_would_take_running_the_script_is_an_error_that_names_the_line(text, problem, at_home):
    assert problem in problem_of(at_home, text)


def test_what_does_not_reach_the_command_does_no_harm(at_home):
    script = write(at_home, 'H=$(hostname)\nwhile ! nc $H 80; do sleep 1; done\nsrun -w "$H" python3 -m M --a 1')

    assert our_words(script) == ["--a", "1"]


def test_an_unknown_variable_of_the_ray_job_is_an_error(at_home):
    text = (
        """ray job submit --runtime-env-json="{\\"env_vars\\": {\\"H\\": \\"$(hostname)\\"}}" -- python3 -m M --a 1"""
    )

    assert "needs $(hostname) of line 1, and dlrl reads a script without running it" in problem_of(at_home, text)


@given(st.text(st.sampled_from("a1 \n\t\\'\"$`(){}[]|&;<>#=!~*@:-") | st.characters(), max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader(text):
    """It may be no script at all: the worst that comes of it is an error that names what is wrong."""
    with contextlib.suppress(SpecError):
        training_command(("bash", "-c", f"{text}\npython3 -m {MODULE}"))


def test_an_unset_variable_is_named_where_its_value_is_missing(at_home):
    script = write(at_home, "python3 -m M \\\n--actor.num_nodes $NODES")

    assert our_words(script) == ["--actor.num_nodes"]
    with pytest.raises(SpecError) as caught:
        read_words(script)
    assert "'--actor.num_nodes' (train.sh:2, '$NODES' is not set) takes one value, and has none" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "A=(\n # --no_such 1\n  --no_such 1\n)\npython3 -m M ${A[@]}",
        "read -r -d '' A <<EOF\n  --other 1 \\\n  --no_such 1\nEOF\npython3 -m M $A",
        'bash -c "true \\\n&& python3 -m M \\\n  --no_such 1"',
    ],
    ids=["array", "heredoc", "bash -c"],
)
def test_a_flag_is_named_with_the_line_on_which_it_is_written(text, at_home):
    with pytest.raises(SpecError, match=r"unknown flag '--no_such' \(train.sh:3\)"):
        read_words(write(at_home, text))


def test_flags_that_a_comment_cut_off_are_told(at_home, caplog):
    our_words(write(at_home, "python3 -m M --a 1 \\\n# --b 2 \\\n--c 3"))

    assert "'--c' (train.sh:3) stands alone: a comment or a blank cut its command off" in caplog.text


def test_a_script_that_can_not_be_read_is_named(at_home):
    (at_home / "binary.sh").write_bytes(b"\xff\xfe")

    for name, problem in (("none.sh", "'none.sh': No such file"), ("binary.sh", "'binary.sh' is not a text in UTF-8")):
        with pytest.raises(SpecError, match=problem):
            read_words("bash", name)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["python3", "-m", "openrlhf.cli.train_sft"], "the command runs 'openrlhf.cli.train_sft' (word 3); dlrl runs"),
        (["make", "train"], "'make' (word 1) is neither a flag nor a launch script (.sh), and does not run"),
    ],
)
def test_words_that_do_not_train_are_refused(words, problem):
    with pytest.raises(SpecError) as caught:
        read_words(*words)

    assert problem in str(caught.value)

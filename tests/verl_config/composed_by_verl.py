"""Run as a program: what verl's own command makes of words. Reads lists of words, writes configs and refusals.

The command itself is run, as `python -m verl.trainer.main_ppo ... --cfg job` would, and then the check that it would
do first of all. All lists go to one process, because importing verl takes longer than all of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys

COMMAND = "verl.trainer.main_ppo"


def answer_to(words: list[str]) -> dict[str, str]:
    sys.argv = [COMMAND, *words, "--cfg", "job"]
    printed, refused = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(refused):
        try:
            runpy.run_module(COMMAND, run_name="__main__")
        except SystemExit as end:
            if end.code:
                return {"refusal": refused.getvalue()}
    return {"yaml": printed.getvalue(), "objection": objection_to(printed.getvalue())}


def objection_to(text: str) -> str:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    config = OmegaConf.create(text)
    del config.critic.model  # it would be looked for on the network
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            validate_config(config, need_reference_policy(config), need_critic(config))
            omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    questions = json.load(sys.stdin)
    answers = [answer_to(words) for words in questions]
    print(f"\n{json.dumps(answers)}")

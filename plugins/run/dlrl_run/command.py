"""The commands `dlrl run` and `dlrl stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from dlrl_core.cli.app import (
    Address,
    AsJson,
    CommitWishes,
    DevicePerNode,
    Framework,
    NodeNum,
    Override,
    Words,
    job_input,
)
from dlrl_core.cli.error_report import errors_shown


def run(
    words: Words = None,
    framework: Framework = None,
    name: Annotated[str | None, typer.Option(help="The job's name; by default that of its file.")] = None,
    address: Address = None,
    node_num: NodeNum = None,
    device_per_node: DevicePerNode = None,
    overrides: Override = None,
    commits: CommitWishes = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for resources that other jobs hold.")
    ] = 60.0,
    detach: Annotated[bool, typer.Option("--detach", help="Submit to a cluster and return at once.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a job and wait for its end.

    Without a cluster address, a local Ray shaped like the job is started for
    it and stopped after it. Progress and what the job prints go to stderr, the
    result to stdout. Ctrl-C stops the job; a second one leaves it as it is.

    \b
    Examples:
      dlrl run examples/quickstart/quickstart.yaml --set steps=20
      dlrl run --framework verl -- python -m verl.trainer.main_ppo data.seed=1
    """
    with errors_shown(as_json):
        _print_plugin_problems()
        from dlrl_run.run_job import run_job, submit_job

        given = job_input(words, framework, overrides, node_num, device_per_node, commits)
        if detach:
            submit_job(given, name=name, address=address, wait_s=wait, as_json=as_json)
        else:
            run_job(given, name=name, address=address, wait_s=wait, is_quiet=quiet, as_json=as_json)


def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job to stop.")],
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Stop a job and wait until nothing of it is left.

    \b
    Example:
      dlrl stop quickstart --address 10.0.0.7:6379
    """
    with errors_shown(as_json):
        _print_plugin_problems()
        from dlrl_run.stop_job import stop_job

        stop_job(name, address, as_json=as_json)


def _print_plugin_problems() -> None:
    """What is wrong with any plugin is said before the job is touched: its processes load the same ones."""
    from dlrl_core.cli.output import print_problems
    from dlrl_core.plugin import plugin_host

    print_problems(plugin_host().problems())

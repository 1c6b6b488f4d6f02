"""The commands `dlrl run`, `dlrl plan` and `dlrl stop`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlrl_core.cli.app import Address, AsJson
from dlrl_core.cli.error_report import errors_shown
from dlrl_jobs.options import CommitWishes, DevicePerNode, Framework, NodeNum, Override, Words, job_input


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
        from dlrl_jobs.run_job import run_job, submit_job

        given = job_input(words, framework, overrides, node_num, device_per_node, commits)
        if detach:
            submit_job(given, name=name, address=address, wait_s=wait, as_json=as_json)
        else:
            run_job(given, name=name, address=address, wait_s=wait, is_quiet=quiet, as_json=as_json)


def plan(
    words: Words = None,
    framework: Framework = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Plan on this Ray cluster, as free as it is now.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Plan on a cluster of so many nodes...")
    ] = None,
    devices: Annotated[int | None, typer.Option(min=0, help="...with so many devices each...")] = None,
    cpus: Annotated[int | None, typer.Option(min=0, help="...and so many CPUs; enough if not said.")] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plan on the cluster that this YAML file describes.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plan into this SVG file.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plan as a page, with picture.")] = None,
    node_num: NodeNum = None,
    device_per_node: DevicePerNode = None,
    overrides: Override = None,
    commits: CommitWishes = None,
    as_json: AsJson = False,
) -> None:
    """Show where each workload would run, and what a death would restart.

    Without a cluster, the smallest one that the job fits. RAY_ADDRESS does not
    count here: unless --address is said, neither Ray nor a class of the job is
    imported.

    \b
    Examples:
      dlrl plan examples/quickstart/quickstart.yaml
      dlrl plan examples/quickstart/quickstart.yaml --nodes 2 --devices 8
      dlrl plan examples/quickstart/quickstart.yaml --html plan.html
    """
    with errors_shown(as_json):
        from dlrl_jobs.plan_job import ClusterChoice, PictureFiles, plan_job

        given = job_input(words, framework, overrides, node_num, device_per_node, commits)
        choice = ClusterChoice(address=address, file=cluster, nodes=nodes, devices=devices, cpus=cpus)
        plan_job(given, choice, PictureFiles(svg=svg, html=html), as_json=as_json)


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
        from dlrl_jobs.stop_job import stop_job

        stop_job(name, address, as_json=as_json)


def _print_plugin_problems() -> None:
    """What is wrong with any plugin is said before the job is touched: its processes load the same ones."""
    from dlrl_core.cli.output import print_problems
    from dlrl_core.plugin import plugin_host

    print_problems(plugin_host().problems())

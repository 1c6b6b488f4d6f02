"""The command `dlrl plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlrl_core.cli.app import AsJson, CommitWishes, DevicePerNode, Framework, NodeNum, Override, Words, job_input
from dlrl_core.cli.error_report import errors_shown


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
        from dlrl_pages.plan_job import ClusterChoice, PictureFiles, plan_job

        given = job_input(words, framework, overrides, node_num, device_per_node, commits)
        choice = ClusterChoice(address=address, file=cluster, nodes=nodes, devices=devices, cpus=cpus)
        plan_job(given, choice, PictureFiles(svg=svg, html=html), as_json=as_json)

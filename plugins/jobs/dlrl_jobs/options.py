"""The options with which `dlrl run` and `dlrl plan` are given a job."""

from __future__ import annotations

from typing import Annotated

import typer

from dlrl_jobs.job_input import JobInput

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB.yaml | -- WORDS...",
        help="A job file; or, with --framework, that framework's own words, unchanged.",
        show_default=False,
    ),
]
Framework = Annotated[str | None, typer.Option(help="Read the words as this framework does; see: dlrl frameworks.")]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value of the config, as in model.lr=0.1. Repeatable."),
]
NodeNum = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many nodes the job uses, whatever its file or config says.")
]
DevicePerNode = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many devices it uses on each of them.")
]
CommitWishes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="How often to commit and where to: every=5, budget=0.05, durable_every=20. Repeatable.",
    ),
]


def job_input(
    words: list[str] | None,
    framework: str | None,
    overrides: list[str] | None,
    node_num: int | None,
    device_per_node: int | None,
    commits: list[str] | None,
) -> JobInput:
    """What a command with these options was given."""
    return JobInput(
        words=words or [],
        framework=framework,
        overrides=overrides or [],
        node_num=node_num,
        device_per_node=device_per_node,
        commits=commits or [],
    )

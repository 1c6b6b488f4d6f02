"""What a run of a framework wrote to tensorboard, as it was told to."""

from __future__ import annotations

from pathlib import Path


def curves(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Each number that was logged: (step, value, time), in order of steps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, list[tuple[int, float, float]]] = {}
    for events in folder.rglob("events.out.*"):
        accumulator = EventAccumulator(str(events))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found.setdefault(tag, []).extend((one.step, one.value, one.wall_time) for one in accumulator.Scalars(tag))
    return {tag: sorted(values) for tag, values in found.items()}

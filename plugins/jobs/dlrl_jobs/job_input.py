"""From the words of the command line to a job: a job file, or a framework with its own words."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrl_core.errors import SpecError

if TYPE_CHECKING:
    from dlrl_core.api import RLJob, RLJobBuilder

_YAML = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class JobInput:
    """What `dlrl run` and `dlrl plan` were given."""

    words: Sequence[str]
    framework: str | None
    overrides: Sequence[str]
    node_num: int | None = None
    device_per_node: int | None = None
    commits: Sequence[str] = ()
    """Such as 'every=5': fields of the job's `commits`."""

    def build(self, *, import_classes: bool) -> RLJob:
        """The checked job; user modules are looked for beside the job file, then in the current folder."""
        _look_in(Path.cwd())
        if self.framework is None:
            _look_in(self._job_file().parent.resolve())
        builder = self._builder().override(*self.overrides)
        if self.node_num is not None:
            builder.node_num(self.node_num)
        if self.device_per_node is not None:
            builder.device_per_node(self.device_per_node)
        if self.commits:
            builder.commits(**_wishes(self.commits))
        return builder.build(import_classes=import_classes)

    def default_name(self) -> str:
        """The job file's own name without its ending, or the framework's name with the current time."""
        if self.framework is not None:
            return f"{self.framework}-{time.strftime('%Y%m%d-%H%M%S')}"
        return self._job_file().stem

    def _builder(self) -> RLJobBuilder:
        from dlrl_core.api import RLJobBuilder

        if self.framework is None:
            return RLJobBuilder.from_file(self._job_file())
        builder = RLJobBuilder().framework(self.framework)
        if len(self.words) == 1 and self.words[0].endswith(_YAML):
            return builder.config(Path(self.words[0]))
        return builder.config(list(self.words)) if self.words else builder

    def _job_file(self) -> Path:
        if len(self.words) == 1:
            return Path(self.words[0])
        given = f"got {len(self.words)} words" if self.words else "got none"
        raise SpecError(
            [f"say one job file (JOB.yaml), or --framework NAME followed by -- and the framework's own words; {given}"]
        )


def _wishes(words: Sequence[str]) -> dict[str, Any]:
    """The fields and values of 'every=5,budget=0.05', read as YAML reads them."""
    import yaml

    pairs = [pair.partition("=") for word in words for pair in word.split(",")]
    wrong = [f"--commits '{name}' is no NAME=VALUE, such as every=5" for name, mark, _ in pairs if not mark]
    if wrong:
        raise SpecError(wrong)
    return {name.strip(): yaml.safe_load(value) for name, _, value in pairs}


def _look_in(folder: Path) -> None:
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))

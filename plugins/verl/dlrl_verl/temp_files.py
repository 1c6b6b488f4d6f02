"""Temporary files that verl would leave behind when its process is killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dlrl_adapter_kit.after_import import after_import
from dlrl_vllm.owned_files import own_files


def prepare() -> None:
    """Called in each process of a job before verl is imported."""
    after_import("verl.utils.fs", _make_folders_without_lock)
    after_import("wandb.sdk.data_types._private", _own_media)
    after_import("wandb.sdk.artifacts.artifact", _own_artifacts)


def _make_folders_without_lock(module: Any) -> None:
    """verl makes the folders of checkpoints below a lock file, which it leaves in the temporary folder.

    Its name has Python's hash of the path, which is another one in each process: the file locks nothing.
    """

    def local_mkdir_safe(path: str) -> str:
        Path(path).mkdir(parents=True, exist_ok=True)
        return str(Path(path).absolute())

    module.local_mkdir_safe = local_mkdir_safe


def _own_media(module: Any) -> None:
    """wandb, which verl imports, makes two folders. Python removes them at the end of a process that is not killed."""
    module.MEDIA_TMP = _moved(module.MEDIA_TMP)


def _own_artifacts(module: Any) -> None:
    module.Artifact._TMP_DIR = _moved(module.Artifact._TMP_DIR)


def _moved(folder: tempfile.TemporaryDirectory[str]) -> tempfile.TemporaryDirectory[str]:
    folder.cleanup()
    return tempfile.TemporaryDirectory(dir=own_files().temp_folder)

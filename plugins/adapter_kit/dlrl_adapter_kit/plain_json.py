"""Small trees of plain values and tensors as one JSON value, such as the state of a data loader. Nothing is pickled."""

from __future__ import annotations

import base64
from typing import Any

from dlrl_adapter_kit.torch_state import capture_tree, tree_of
from dlrl_core.workload.captured_state import SavedState, StateBuffer


def to_plain(value: Any) -> Any:
    """The tree as JSON values, copied. Raises TypeError with the place of a value that can't be written."""
    captured = capture_tree(value)
    return {"layout": captured.layout, "bytes": {name: _text_of(one) for name, one in captured.buffers.items()}}


def from_plain(value: Any) -> Any:
    """The tree that `to_plain` was given. Its tensors are on the host and have memory of their own."""
    # A bytearray: tensors over memory that is read-only can't be changed, and torch warns of them.
    buffers = {name: memoryview(bytearray(base64.b64decode(text))) for name, text in value["bytes"].items()}
    return tree_of(SavedState(layout=value["layout"], buffers=buffers))


def _text_of(buffer: StateBuffer) -> str:
    copied = bytearray(buffer.size)
    buffer.copy_to(memoryview(copied))
    return base64.b64encode(copied).decode()

"""Frameworks free a tensor's memory while its content is elsewhere: that is never taken for the content."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework(needs="torch")

from dlrl_adapter_kit.torch_state import capture_tree  # noqa: E402


def test_a_tensor_whose_memory_is_freed_is_refused_by_its_place():
    weight = torch.ones(3)
    weight.untyped_storage().resize_(0)

    with pytest.raises(RuntimeError, match=r"can't hold 'module\.weight': the memory of this tensor is freed"):
        capture_tree({"module": {"weight": weight}})

"""Trees of tensors as a commit takes them: any tree comes back bit for bit, and nothing is copied at the capture."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework(needs="torch")

from dlrl_adapter_kit.torch_state import TensorBuffer, capture_tree, tree_of  # noqa: E402
from dlrl_core.workload.captured_state import SavedState  # noqa: E402

DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
)
ARRAYS = (np.float32, np.int64, np.bool_, np.uint8)


def copied(captured):
    """The captured state as a host keeps it, its layout through JSON."""
    buffers = {name: memoryview(bytearray(buffer.size)) for name, buffer in captured.buffers.items()}
    for name, buffer in captured.buffers.items():
        buffer.copy_to(buffers[name])
    return SavedState(layout=json.loads(json.dumps(captured.layout, allow_nan=False)), buffers=buffers)


def is_same(one, other):
    """The same bits, kinds and keys."""
    if isinstance(one, torch.Tensor):
        same_kind = isinstance(other, torch.Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return same_kind and bits(one) == bits(other)
    if isinstance(one, np.ndarray | np.generic):
        same_kind = type(one) is type(other) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return same_kind and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or one.hex() == other.hex()
    return one == other


def bits(tensor):
    packed = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    return packed.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


# ---- random trees


@st.composite
def storages(draw):
    """Memory that tensors of a tree share, with random bits."""
    seed, size = draw(st.integers(0, 2**16)), draw(st.integers(1, 12))
    return torch.from_numpy(np.random.RandomState(seed).randint(0, 256, size=16 * size, dtype=np.uint8))


@st.composite
def views(draw, memory):
    """A tensor within that memory: a part of it, with steps, transposed, expanded or of no size."""
    dtype = draw(st.sampled_from(DTYPES))
    if dtype is torch.bool:
        return (memory > 99)[draw(st.integers(0, 3)) :: draw(st.integers(1, 3))]
    flat = memory.view(dtype)
    start = draw(st.integers(0, len(flat)))
    part = flat[start : draw(st.integers(start, len(flat)))]
    return draw(st.sampled_from(SHAPES))(part)


SHAPES = (
    lambda part: part,
    lambda part: part[::2],
    lambda part: part[: len(part) // 2 * 2].view(2, -1).t(),
    lambda part: part[: len(part) // 2 * 2].view(2, 1, -1)[:, :, ::3],
    lambda part: part[:1].expand(3, min(len(part), 1)),
    lambda part: part[0] if len(part) else part,
    lambda part: part.clone(),
    lambda part: torch.nn.Parameter(part) if part.is_floating_point() else part,
    lambda part: part[:0].view(0, 3),
)

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from(DTYPES)
    | st.builds(lambda kind, count: np.arange(count).astype(kind), st.sampled_from(ARRAYS), st.integers(0, 3))
    | st.builds(lambda kind, number: kind(number), st.sampled_from((*ARRAYS, np.float64)), st.integers(0, 9))
)
KEYS = (
    st.text(max_size=3) | st.just("$") | st.integers() | st.booleans() | st.tuples(st.integers(), st.text(max_size=2))
)


@st.composite
def trees(draw):
    memories = draw(st.lists(storages(), min_size=1, max_size=3))
    leaves = PLAIN | st.sampled_from(memories).flatmap(views)
    inner = st.recursive(
        leaves,
        lambda below: (
            st.lists(below, max_size=4)
            | st.lists(below, max_size=3).map(tuple)
            | st.dictionaries(KEYS, below, max_size=4)
        ),
        max_leaves=12,
    )
    return draw(inner)


@settings(max_examples=400, deadline=None)
@given(trees())
def test_any_tree_comes_back_bit_for_bit(tree):
    assert is_same(tree, tree_of(copied(capture_tree(tree))))


@settings(max_examples=100, deadline=None)
@given(storages(), st.data())
def test_tensors_that_share_memory_share_it_again(memory, data):
    whole, part = memory.view(torch.int8), data.draw(views(memory))

    back = tree_of(copied(capture_tree({"whole": whole, "part": part})))

    if part.numel() and part.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr():
        back["whole"].zero_()
        assert not any(bits(back["part"]))


# ---- what a capture promises


def test_a_capture_copies_nothing():
    weight = torch.zeros(4)
    captured = capture_tree({"weight": weight, "rows": weight[::2]})

    weight.add_(1)

    assert tree_of(copied(captured))["rows"].tolist() == [1, 1]


def test_a_small_part_of_a_storage_is_kept_without_the_rest():
    captured = capture_tree({"part": torch.zeros(1000)[3:10]})

    assert captured.size == 7 * 4


def test_memory_that_is_shared_is_kept_once():
    weight = torch.zeros(10, 10)

    captured = capture_tree({"embedding": weight, "head": weight, "transposed": weight.t()})

    assert captured.size == 400


def test_a_storage_is_alike_if_all_of_its_tensors_are():
    flat, other = torch.zeros(8), torch.zeros(8)
    tree = {"model": {"a": flat[:4], "b": flat[4:], "c": other[:4]}, "own": other[4:]}

    captured = capture_tree(tree, alike=lambda path: path if path.startswith("model.") else None)

    ((buffer, name),) = captured.alike.items()
    assert captured.layout["model"]["a"]["buffer"] == buffer
    again = capture_tree(tree, alike=lambda path: path if path.startswith("model.") else None)
    assert set(again.alike.values()) == {name}


@pytest.mark.parametrize("tensor", [torch.arange(24.0), torch.arange(24).view(4, 6).t(), torch.tensor(True)])
def test_a_part_of_a_tensor_is_that_range_of_its_bytes(tensor):
    whole, buffer = bytearray(tensor.numel() * tensor.element_size()), TensorBuffer(tensor)
    buffer.copy_to(memoryview(whole))

    for start, size in ((0, len(whole)), (len(whole) // 3, len(whole) // 2), (len(whole), 0)):
        part = bytearray(size)
        buffer.part(start, size).copy_to(memoryview(part))
        assert part == whole[start : start + size]


def test_what_has_no_known_layout_is_refused_with_its_place():
    with pytest.raises(TypeError, match=r"'model\.rows'.*sparse"):
        capture_tree({"model": {"rows": torch.eye(2).to_sparse()}})

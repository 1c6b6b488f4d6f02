"""Where buffers that ranks hold alike lie in their file: the same for all ranks, in ranges that can be copied apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlrl_core.workload.captured_state import CapturedState, capture_arrays
from dlrl_state.alike_buffers import AlikeLayout, alike_layout
from dlrl_state.alike_content import stripe_size

MB = 2**20


def layout(sizes: dict[str, int], alike: dict[str, str], role: str = "actor") -> AlikeLayout | None:
    arrays = capture_arrays({name: np.zeros(size, np.uint8) for name, size in sizes.items()})
    return alike_layout(CapturedState(layout=arrays.layout, buffers=arrays.buffers, alike=alike), role)


def test_ranks_that_name_their_buffers_differently_have_one_layout():
    first = layout({"a": 10, "b": 20, "own": 5}, {"a": "weight", "b": "bias"})
    second = layout({"y": 20, "x": 10}, {"y": "bias", "x": "weight"})
    assert first is not None and second is not None
    assert (first.group, first.size, sorted(first.spans)) == (second.group, second.size, sorted(second.spans))
    assert (first.places["a"], first.places["b"]) == (second.places["x"], second.places["y"])


def test_other_content_another_size_or_another_role_is_another_group():
    layouts = [
        layout({"a": 10}, {"a": "weight"}),
        layout({"a": 11}, {"a": "weight"}),
        layout({"a": 10}, {"a": "bias"}),
        layout({"a": 10}, {"a": "weight"}, role="critic"),
    ]
    assert len({one.group for one in layouts if one is not None}) == 4


def test_a_second_buffer_of_the_same_name_is_the_ranks_own():
    found = layout({"a": 10, "b": 10}, {"a": "weight", "b": "weight"})
    assert found is not None
    assert list(found.places) == ["a"]


def test_ranks_with_nothing_alike_have_no_layout():
    assert layout({"a": 10}, {}) is None
    assert layout({"a": 0}, {"a": "weight"}) is None


@given(st.lists(st.integers(0, 3 * MB), min_size=1, max_size=6))
def test_ranges_cover_each_buffer_and_cross_no_border_of_a_stripe(sizes):
    named = {str(index): size for index, size in enumerate(sizes)}
    found = layout(named, {name: f"content {name}" for name in named})
    for name, size in named.items() if found else ():
        start, spans = found.places[name][0], sorted(span for span, of in found.spans.items() if of == name)
        assert sum(length for _, length in spans) == size
        for at, length in spans:
            assert at == start, "no gap, no overlap"
            assert at // stripe_size(found.size) == (at + length - 1) // stripe_size(found.size)
            start += length

"""Splitting and joining of batches, without Ray."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrl_core.workload.invocation import ShardPart, join_pieces, parts_for, split_range, split_value, whole


@given(st.integers(0, 500), st.integers(1, 40))
def test_ranges_cover_everything_once_in_order_and_as_evenly_as_possible(length, parts):
    pieces = [list(range(length))[piece] for piece in split_range(length, parts)]
    assert [item for piece in pieces for item in piece] == list(range(length))
    sizes = [len(piece) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.lists(st.integers(), min_size=1, max_size=60), st.integers(1, 12))
def test_a_split_list_joins_to_itself(batch, parts):
    pieces = split_value(batch, parts)
    if len(batch) < parts:
        assert pieces is None
    else:
        assert len(pieces) == parts
        assert join_pieces(pieces) == batch


@given(st.integers(1, 6), st.integers(1, 6))
def test_results_of_one_role_reach_the_targets_of_another_in_order(sources, targets):
    results = {rank: [rank * 10 + item for item in range(6)] for rank in range(sources)}
    parts = parts_for(list(results), targets)
    if sources % targets and targets % sources:
        assert parts is None
        return
    received = [part.resolve(lambda refs: [results[ref] for ref in refs]) for part in parts]
    assert [item for batch in received for item in batch] == [item for batch in results.values() for item in batch]


class Chunked:
    """A batch of a framework: it has a length and knows how to cut itself."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def chunk(self, parts):
        return [Chunked(list(piece)) for piece in np.array_split(self.items, parts)]

    @classmethod
    def concat(cls, pieces):
        return cls([item for piece in pieces for item in piece.items])


class BadChunk(Chunked):
    def chunk(self, parts):
        return [self]


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 3, None, {"a": [1, 2], "b": 3}, {"a": [1, 2], "b": [1]}, {}, {1, 2, 3}, np.float64(1), whole([1, 2])],
    ids=repr,
)  # fmt: skip
def test_what_is_no_batch_is_given_whole(value):
    assert split_value(value, 2) is None


def test_arrays_split_by_their_first_dimension():
    pieces = split_value(np.arange(6).reshape(3, 2), 2)
    assert [piece.tolist() for piece in pieces] == [[[0, 1], [2, 3]], [[4, 5]]]
    assert join_pieces(pieces).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_mappings_of_batches_split_together():
    assert split_value({"x": (1, 2), "y": [3, 4]}, 2) == [{"x": (1,), "y": [3]}, {"x": (2,), "y": [4]}]


def test_objects_with_chunk_split_themselves():
    pieces = split_value(Chunked([1, 2, 3]), 2)
    assert [piece.items for piece in pieces] == [[1, 2], [3]]
    assert join_pieces(pieces).items == [1, 2, 3]


def test_a_chunk_of_the_wrong_size_is_named():
    with pytest.raises(ValueError, match=r"'BadChunk\.chunk\(2\)' returned 1 pieces; it must return 2"):
        split_value(BadChunk([1, 2, 3]), 2)


def test_pieces_that_can_not_be_joined_stay_a_list():
    assert join_pieces([1, 2]) == [1, 2]


def test_a_part_can_keep_the_results_as_a_list():
    assert ShardPart((0, 1), is_list=True).resolve(lambda refs: [f"r{ref}" for ref in refs]) == ["r0", "r1"]

"""Small trees as JSON: what a data loader tells of its place, and other plain values."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework(needs="torch")

from dlrl_adapter_kit.plain_json import from_plain, to_plain  # noqa: E402


def through_json(value):
    return from_plain(json.loads(json.dumps(to_plain(value), allow_nan=False)))


def test_the_place_of_a_data_loader_comes_back_as_it_was():
    generator = torch.Generator().manual_seed(7)
    place = {
        "episode": 1,
        "best": float("-inf"),
        "data_loader_state_dict": {
            "_sampler_iter_yielded": 3,
            "_iterator_finished": False,
            "fetcher_state": None,
            "_snapshot": {0: {"generator": generator.get_state(), "order": [4, 2, (1, None)]}},
        },
    }
    drawn = torch.rand(3, generator=generator)

    back = through_json(place)

    snapshot = back["data_loader_state_dict"].pop("_snapshot")
    assert snapshot.keys() == {0} and snapshot[0]["order"] == [4, 2, (1, None)]
    again = torch.Generator()
    again.set_state(snapshot[0]["generator"])
    assert torch.equal(torch.rand(3, generator=again), drawn)
    place["data_loader_state_dict"].pop("_snapshot")
    assert back == place


def test_random_states_come_back():
    random.seed(3)
    state = {"python": random.getstate(), "numpy": np.random.RandomState(3).get_state()}

    back = through_json(state)

    assert back["python"] == state["python"]
    again = np.random.RandomState()
    again.set_state(back["numpy"])
    assert again.bytes(8) == np.random.RandomState(3).bytes(8)


def test_tensors_have_memory_of_their_own():
    weight = torch.ones(4)
    plain = to_plain([weight])
    weight.zero_()

    (back,) = from_plain(plain)
    back.add_(1)

    assert back.tolist() == [2, 2, 2, 2]
    assert from_plain(plain)[0].tolist() == [1, 1, 1, 1]


def test_a_value_of_unknown_layout_is_refused_with_its_place():
    with pytest.raises(TypeError, match=r"'loader\.worker\[1\]'.*builtins\.object"):
        to_plain({"loader": {"worker": [1, object()]}})

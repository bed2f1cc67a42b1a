"""State survives the way through ``weights_only``, exactly, or is refused by name."""

from __future__ import annotations

import io
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from enum import Enum, IntEnum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.checkpoints.codec import decode_state, encode_state
from voicehub.checkpoints.strict_json import dump_json, parse_json
from voicehub.errors import CheckpointError


def through_file(state):
    file = io.BytesIO()
    torch.save(encode_state(state), file)
    file.seek(0)
    return decode_state(torch.load(file, weights_only=True))


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(st.text(max_size=5), st.integers(), st.just("$voicehub"), st.tuples(st.integers()))
states = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(st.integers(), max_size=3),
        st.frozensets(st.text(max_size=3), max_size=3),
    ),
    max_leaves=8,
)


@given(states)
def test_plain_state_comes_back_with_its_types(state):
    back = through_file(state)
    assert back == state
    assert repr(back) == repr(state) or isinstance(state, (dict, set, frozenset, list, tuple))
    assert type(back) is type(state)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_json_comes_back(value):
    assert repr(parse_json(dump_json(value))) == repr(_sorted(value))


def _sorted(value):
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.zeros((0, 4)),
        np.array(3.5),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.arange(4, dtype=">i8"),
        np.arange(10)[::-2],
        np.float16([1, np.nan]),
    ],
)
def test_arrays_come_back(array):
    back = through_file({"a": array})["a"]
    np.testing.assert_array_equal(back, array)
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    "scalar", [np.float64(0.1), np.int32(-3), np.bool_(True), np.uint64(2**63), np.complex128(1j)]
)
def test_array_scalars_come_back(scalar):
    back = through_file([scalar])[0]
    assert back == scalar
    assert type(back) is type(scalar)


def test_containers_with_a_library_of_their_own():
    Pair = namedtuple("Pair", "a b")
    assert through_file(deque([1, 2], maxlen=5)) == deque([1, 2], maxlen=5)
    assert through_file(deque([1], maxlen=5)).maxlen == 5
    assert through_file(OrderedDict(a=1)) == {"a": 1}
    assert through_file(defaultdict(int, a=1)) == {"a": 1}
    assert through_file(Counter("aab")) == {"a": 2, "b": 1}
    assert through_file(Pair(1, [2])) == (1, [2])
    assert through_file(torch.Size([2, 3])) == (2, 3)


def test_enumerations_of_strings_and_integers_become_their_values():
    class Mode(str, Enum):
        FAST = "fast"

    class Level(IntEnum):
        HIGH = 3

    back = through_file([Mode.FAST, Level.HIGH])
    assert back == ["fast", 3]
    assert [type(item) for item in back] == [str, int]
    assert [type(item) for item in parse_json(dump_json([Mode.FAST, Level.HIGH]))] == [str, int]


def test_special_numbers_come_back():
    back = through_file([math.nan, math.inf, -0.0, 2**200])
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -0.0, 2**200]
    assert math.copysign(1, back[2]) == -1


def test_tensors_that_are_one_stay_one_and_are_copied_once():
    shared = torch.ones(3)
    copies = []

    def copy(tensor):
        copies.append(tensor)
        return tensor.clone()

    encoded = encode_state({"a": shared, "b": [shared]}, copy=copy)
    assert encoded["a"] is encoded["b"][0]
    assert encoded["a"] is not shared
    assert len(copies) == 1


def test_parameters_become_plain_tensors():
    back = encode_state(torch.nn.Parameter(torch.ones(2)))
    assert type(back) is torch.Tensor
    assert not back.requires_grad


@pytest.mark.parametrize(
    "value",
    [
        object(),
        len,
        lambda: 0,
        Exception("x"),
        np.array(["a"]),
        np.array([object()]),
        Enum("E", "A").A,
        iter([]),
    ],
)
def test_what_would_need_code_is_refused_with_its_path(value):
    with pytest.raises(CheckpointError, match=r"state\['a'\]\[1\]"):
        encode_state({"a": [0, value]})


@pytest.mark.parametrize("key", [object(), frozenset([1]), np.float64(1)])
def test_keys_that_cannot_be_stored_are_refused(key):
    with pytest.raises(CheckpointError, match="key"):
        encode_state({key: 1})


def test_optimizer_state_keeps_its_natural_form():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], betas=(0.8, 0.9))
    weight.sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    encoded = encode_state(state)
    assert encoded["param_groups"] == state["param_groups"]
    assert encoded["state"][0].keys() == state["state"][0].keys()


def test_a_kind_from_the_future_is_refused():
    with pytest.raises(ValueError, match="'quaternion'"):
        decode_state({"$voicehub": "quaternion", "value": 1})

"""The structural collator: D1-D5 of the contract, statement by statement."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.data.collate import (
    DataCollatorForAudioTraining,
    DataCollatorForTTSTraining,
    default_data_collator,
)
from voicehub.data.schema import TTSFieldSchema

collate = DataCollatorForTTSTraining()


def declared(**schemas):
    return DataCollatorForTTSTraining(field_schemas=schemas)


# Items and structure


def test_names_and_defaults():
    assert DataCollatorForTTSTraining is DataCollatorForAudioTraining
    assert (collate.padding_value, collate.label_pad_token_id) == (0.0, -100)
    assert (collate.return_attention_mask, collate.return_input_lengths) == (True, False)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="non-empty batch"):
        collate([])
    with pytest.raises(ValueError, match="non-empty batch"):
        default_data_collator([])


@pytest.mark.parametrize("item", [3, "text", [1, 2], (1, 2), None])
def test_items_that_are_no_mappings_are_refused(item):
    with pytest.raises(TypeError, match="item 1 of the batch"):
        collate([{"x": 1}, item])


def test_dataclass_instances_are_accepted_and_classes_are_not():
    @dataclasses.dataclass
    class Item:
        x: torch.Tensor
        text: str

    batch = collate([Item(torch.ones(2), "a"), Item(torch.zeros(2), "b")])
    assert batch["x"].tolist() == [[1, 1], [0, 0]]
    assert batch["text"] == ["a", "b"]
    with pytest.raises(TypeError, match="mapping"):
        collate([Item])


def test_nested_mappings_are_collated_and_order_is_kept():
    items = [
        {"model_inputs": {"mel": torch.ones(80, n), "deep": {"z": torch.tensor(n)}}, "text": "t"}
        for n in (3, 2)
    ]
    batch = collate(items)
    assert list(batch) == ["model_inputs", "text"]
    assert batch["model_inputs"]["mel"].shape == (2, 80, 3)
    assert batch["model_inputs"]["mel"][1, :, 2].eq(0).all()
    assert batch["model_inputs"]["deep"]["z"].tolist() == [3, 2]


def test_empty_mappings_stay():
    assert collate([{"a": {}, "b": 1}, {"a": {}, "b": 2}])["a"] == {}


def test_a_mapping_in_one_item_and_a_value_in_another_is_refused():
    for items in ([{"x": {"y": 1}}, {"x": 1}], [{"x": 1}, {"x": {"y": 1}}]):
        with pytest.raises(ValueError, match="'x' is a mapping in some items"):
            collate(items)


def test_a_field_of_some_items_only_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'b' is missing from item 1 .*1 of 2"):
        collate([{"a": 1, "b": 2}, {"a": 1}])
    with pytest.raises(ValueError, match=r"'m\.b' is missing from item 0"):
        collate([{"m": {"a": torch.ones(2)}}, {"m": {"a": torch.ones(2), "b": torch.ones(2)}}])


def test_field_names_must_be_strings():
    with pytest.raises(TypeError, match="field name 3"):
        collate([{3: 1}])
    with pytest.raises(TypeError, match="field name 3"):
        collate([{"m": {3: 1}}])


# Stacking and padding without schema


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 1))
def test_padding_keeps_every_value_and_fills_the_rest(lengths, other, dim):
    shapes = [(n, other) if dim == 0 else (other, n) for n in lengths]
    items = [{"x": torch.rand(shape) + 1} for shape in shapes]
    batch = collate(items)["x"]
    longest = max(lengths)
    # With equal sizes in both dimensions the first one varies; the test's own rule is the same.
    assert batch.shape == (len(items), *((longest, other) if dim == 0 else (other, longest)))
    for row, item in zip(batch, items, strict=True):
        size = item["x"].shape[dim]
        assert torch.equal(row.narrow(dim, 0, size), item["x"])
        assert row.narrow(dim, size, longest - size).eq(0).all()


def test_equal_shapes_are_stacked():
    batch = collate([{"x": torch.arange(6).reshape(2, 3)} for _ in range(2)])
    assert torch.equal(batch["x"], torch.arange(6).reshape(1, 2, 3).repeat(2, 1, 1))


def test_padding_value_is_a_setting():
    filled = DataCollatorForTTSTraining(padding_value=7.0)
    assert filled([{"x": torch.ones(2)}, {"x": torch.ones(1)}])["x"].tolist() == [[1, 1], [1, 7]]


def test_ambiguous_values_stay_lists():
    both = [torch.ones(2, 3), torch.ones(3, 2)]
    ranks = [torch.ones(2), torch.ones(2, 2)]
    batch = collate([{"both": a, "ranks": b} for a, b in zip(both, ranks, strict=True)])
    assert batch["both"][1] is both[1]
    assert batch["ranks"] == ranks


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        [None, None],
        [["a"], ["b"]],
        [[[1], [1, 2]], [[1], [2]]],
        [b"x", b"y"],
        [np.array(["a"]), np.array(["b"])],
        [1, "b"],
        [[1, "x"], [2, 3]],
        [[2**70], [1]],
    ],
)
def test_values_that_are_no_numbers_stay_lists(values):
    batch = collate([{"x": value} for value in values])
    assert batch["x"] == values


def test_named_tuples_are_values_of_their_own():
    from voicehub.data.keyed_random import SampleKey

    keys = [SampleKey(1, 2, 3, 4), SampleKey(1, 2, 4, 5)]
    assert collate([{"key": key} for key in keys])["key"] == keys


def test_python_numbers_lists_and_arrays_become_tensors():
    batch = collate(
        [
            {"i": 1, "f": 0.5, "b": True, "l": [1, 2], "a": np.float32([1, 2]), "s": np.int64(3)},
            {"i": 2, "f": 1, "b": False, "l": [3], "a": np.float32([3]), "s": np.int64(4)},
        ]
    )
    assert {k: v.dtype for k, v in batch.items()} == {
        "i": torch.int64,
        "f": torch.float32,
        "b": torch.bool,
        "l": torch.int64,
        "a": torch.float32,
        "s": torch.int64,
    }
    assert batch["l"].tolist() == [[1, 2], [3, 0]]
    assert batch["f"].tolist() == [0.5, 1.0]


def test_read_only_reversed_and_big_endian_arrays_are_read_right():
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    arrays = [read_only, np.arange(3.0)[::-1], np.arange(3.0).astype(">f8")]
    batch = collate([{"x": array} for array in arrays])
    assert batch["x"].tolist() == [[0, 1, 2], [2, 1, 0], [0, 1, 2]]


def test_kinds_of_numbers_are_not_mixed_silently():
    with pytest.raises(ValueError, match=r"'x' mixes torch\.float32 and torch\.int64"):
        collate([{"x": torch.ones(2)}, {"x": torch.ones(2, dtype=torch.int64)}])
    wide = collate([{"x": torch.ones(2)}, {"x": torch.ones(2, dtype=torch.float64)}])
    assert wide["x"].dtype == torch.float64


def test_empty_lists_take_after_the_others():
    batch = collate([{"input_ids": [], "x": []}, {"input_ids": [5, 6], "x": [0.5]}])
    assert batch["input_ids"].dtype == torch.int64
    assert batch["input_ids"].tolist() == [[0, 0], [5, 6]]
    assert batch["x"].tolist() == [[0.0], [0.5]]
    assert collate([{"labels": []}, {"labels": []}])["labels"].dtype == torch.int64


def test_integer_padding_that_the_type_cannot_hold_is_refused():
    halves = DataCollatorForTTSTraining(padding_value=0.5)
    with pytest.raises(ValueError, match=r"'x'.*cannot be padded with 0.5"):
        halves([{"x": torch.tensor([1])}, {"x": torch.tensor([1, 2])}])


# Labels


@pytest.mark.parametrize("name", ["labels", "label_ids"])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int64, torch.int64),
        (torch.int32, torch.int32),
        (torch.int8, torch.int8),
        (torch.uint8, torch.int64),
        (torch.bool, torch.int64),
        (torch.uint16, torch.int64),
    ],
)
def test_integer_labels_pad_with_minus_100(name, dtype, expected):
    items = [{name: torch.ones(n).to(dtype)} for n in (1, 2)]
    batch = collate(items)[name]
    assert batch.dtype == expected
    assert batch.tolist() == [[1, -100], [1, 1]]
    equal = collate([items[1], items[1]])[name]
    assert equal.dtype == expected, "the type may not depend on whether a batch needed padding"


def test_float_labels_pad_with_zero_and_nested_labels_count_too():
    assert collate([{"labels": torch.ones(1)}, {"labels": torch.ones(2)}])["labels"][0, 1] == 0.0
    nested = collate([{"model_inputs": {"labels": [1]}}, {"model_inputs": {"labels": [1, 2]}}])
    assert nested["model_inputs"]["labels"].tolist() == [[1, -100], [1, 2]]


# The attention mask and lengths


def test_attention_mask_is_derived_for_padded_input_ids_only():
    padded = collate([{"input_ids": [1, 2, 3]}, {"input_ids": [1]}])
    assert padded["attention_mask"].dtype == torch.bool
    assert padded["attention_mask"].tolist() == [[True] * 3, [True, False, False]]
    assert "attention_mask" not in collate([{"input_ids": [1, 2]}, {"input_ids": [1, 2]}])
    assert "attention_mask" not in collate([{"input_values": [1.0]}, {"input_values": [1.0, 2.0]}])
    off = DataCollatorForTTSTraining(return_attention_mask=False)
    assert "attention_mask" not in off([{"input_ids": [1, 2, 3]}, {"input_ids": [1]}])


def test_a_given_attention_mask_is_collated_not_derived():
    items = [
        {"input_ids": [1, 2], "attention_mask": [1, 0]},
        {"input_ids": [1], "attention_mask": [1]},
    ]
    assert collate(items)["attention_mask"].tolist() == [[1, 0], [1, 0]]


def test_the_mask_sits_beside_nested_input_ids():
    items = [{"model_inputs": {"input_ids": [1, 2]}}, {"model_inputs": {"input_ids": [1]}}]
    batch = collate(items)
    assert batch["model_inputs"]["attention_mask"].tolist() == [[True, True], [True, False]]
    assert "attention_mask" not in batch


@pytest.mark.parametrize("shape", [lambda n: (n, 4), lambda n: (4, n)])
def test_ragged_input_ids_of_rank_two_pad_and_get_a_mask(shape):
    items = [{"input_ids": torch.ones(shape(n), dtype=torch.int64)} for n in (5, 3)]
    batch = collate(items)
    assert batch["input_ids"].shape == (2, *shape(5))
    assert batch["attention_mask"].tolist() == [[True] * 5, [True] * 3 + [False] * 2]


def test_input_lengths_are_added_on_request():
    lengths = DataCollatorForTTSTraining(return_input_lengths=True)
    batch = lengths([{"input_values": [1.0, 2.0]}, {"input_values": [1.0]}])
    assert batch["input_lengths"].dtype == torch.int64
    assert batch["input_lengths"].tolist() == [2, 1]
    equal = lengths([{"input_ids": [1, 2]}, {"input_ids": [3, 4]}])
    assert equal["input_lengths"].tolist() == [2, 2]
    nested = lengths([{"model_inputs": {"input_ids": [1, 2]}}])
    assert nested["model_inputs"]["input_lengths"].tolist() == [2]
    assert "input_lengths" not in collate([{"input_ids": [1, 2]}])


def test_input_lengths_are_refused_where_they_would_be_guessed():
    lengths = DataCollatorForTTSTraining(return_input_lengths=True)
    with pytest.raises(ValueError, match="needs one of input_ids"):
        lengths([{"mel": torch.ones(2)}])
    with pytest.raises(ValueError, match="cannot tell which dimension"):
        lengths([{"input_values": torch.ones(2, 3)}])
    told = DataCollatorForTTSTraining(
        return_input_lengths=True, field_schemas={"input_values": TTSFieldSchema(sequence_dim=1)}
    )
    items = [{"input_values": torch.ones(2, n)} for n in (3, 1)]
    assert told(items)["input_lengths"].tolist() == [3, 1]


# Phases


def test_the_phase_is_one_value_for_the_batch():
    assert collate([{"training_phase": "generator"}] * 2)["training_phase"] == "generator"
    phase = object()
    assert collate([{"training_phase": phase}] * 2)["training_phase"] is phase


def test_mixed_and_missing_phases_are_refused():
    with pytest.raises(ValueError, match=r"same training_phase.*'a'.*item 1.*'b'"):
        collate([{"training_phase": "a"}, {"training_phase": "b"}])
    with pytest.raises(ValueError, match="must provide training_phase"):
        collate([{"training_phase": "a", "x": 1}, {"x": 1}])
    assert "training_phase" not in collate([{"training_phase": None, "x": 1}])


# Schemas


def test_lengths_and_mask_of_a_declared_field():
    collator = declared(
        **{
            "model_inputs.mel": {
                "sequence_dim": 1,
                "length_field": "mel_lengths",
                "mask_field": "masks.mel",
            }
        }
    )
    batch = collator([{"model_inputs": {"mel": torch.ones(4, n)}} for n in (2, 5)])
    assert batch["model_inputs"]["mel"].shape == (2, 4, 5)
    assert batch["model_inputs"]["mel_lengths"].tolist() == [2, 5]
    assert batch["model_inputs"]["mel_lengths"].dtype == torch.int64
    assert batch["masks"]["mel"].dtype == torch.bool
    assert batch["masks"]["mel"].tolist() == [[True] * 2 + [False] * 3, [True] * 5]


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.sampled_from(["left", "right"]),
    st.sampled_from([None, 1, 4]),
    st.sampled_from([0, 1, -1]),
)
def test_sides_multiples_and_dims_agree_with_the_mask(lengths, side, multiple, dim):
    collator = declared(
        x={
            "sequence_dim": dim,
            "padding_side": side,
            "padding_value": -7.0,
            "pad_to_multiple_of": multiple,
            "mask_field": "m",
            "length_field": "n",
        }
    )
    items = [{"x": torch.rand((n, 2) if dim == 0 else (2, n))} for n in lengths]
    batch = collator(items)
    x = batch["x"] if dim == 0 else batch["x"].transpose(1, 2)
    padded = x.shape[1]
    assert padded >= max(lengths)
    assert padded - max(lengths) < (multiple or 1)
    assert padded % (multiple or 1) == 0
    assert batch["n"].tolist() == lengths
    assert batch["m"].sum(1).tolist() == lengths
    for row, (item, mask) in enumerate(zip(items, batch["m"], strict=True)):
        original = item["x"] if dim == 0 else item["x"].transpose(0, 1)
        assert torch.equal(x[row][mask], original)
        assert x[row][~mask].eq(-7.0).all()
        if side == "left":
            assert mask.tolist() == sorted(mask.tolist())
        else:
            assert mask.tolist() == sorted(mask.tolist(), reverse=True)


def test_declared_labels_keep_their_padding_unless_told_otherwise():
    items = [{"labels": [1]}, {"labels": [1, 2]}]
    assert declared(labels={"padding_side": "left"})(items)["labels"].tolist() == [
        [-100, 1],
        [1, 2],
    ]
    assert declared(labels={"padding_value": 0})(items)["labels"].tolist() == [[1, 0], [1, 2]]


def test_declared_input_ids_get_a_mask_on_their_side():
    batch = declared(input_ids={"padding_side": "left"})(
        [{"input_ids": [1]}, {"input_ids": [1, 2]}]
    )
    assert batch["attention_mask"].tolist() == [[False, True], [True, True]]
    named = declared(input_ids={"mask_field": "valid"})([{"input_ids": [1]}, {"input_ids": [1, 2]}])
    assert "attention_mask" not in named
    assert named["valid"].tolist() == [[True, False], [True, True]]


def test_allow_missing_makes_a_sequence_of_length_zero():
    collator = declared(mel={"allow_missing": True, "length_field": "n"})
    batch = collator([{"mel": torch.ones(2, 3), "t": 1}, {"t": 2}, {"mel": None, "t": 3}])
    assert batch["mel"].shape == (3, 2, 3)
    assert batch["n"].tolist() == [2, 0, 0]
    assert batch["mel"][1:].eq(0).all()


def test_an_optional_field_that_a_whole_batch_lacks_is_empty():
    collator = declared(**{"model_inputs.ref": {"allow_missing": True, "mask_field": "m"}})
    batch = collator([{"x": 1}, {"x": 2}])
    assert batch["model_inputs"]["ref"].shape == (2, 0)
    assert batch["model_inputs"]["m"].shape == (2, 0)


def test_a_missing_declared_field_is_refused():
    with pytest.raises(ValueError, match=r"missing from items 1 .*allow_missing=True"):
        declared(mel={})([{"mel": torch.ones(2)}, {"other": 1}])
    with pytest.raises(ValueError, match="missing from items 0"):
        declared(mel={})([{"mel": None}, {"mel": torch.ones(1)}])


@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_misspelt_path_is_refused_and_the_near_one_named(allow_missing):
    collator = declared(**{"model_inputs.mels": {"allow_missing": allow_missing}})
    with pytest.raises(
        ValueError, match=r"absent from every item.*Did you mean 'model_inputs\.mel'"
    ):
        collator([{"model_inputs": {"mel": torch.ones(2)}}])


def test_a_path_absent_everywhere_is_refused():
    with pytest.raises(ValueError, match=r"'pitch' is absent from every item.*'mel'"):
        declared(pitch={})([{"mel": torch.ones(2)}])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "single number"),
        (torch.tensor(3.0), "single number"),
        ("text", "holds a str"),
        ({"y": 1}, "is a mapping"),
        ([[1], [1, 2]], "numeric sequences only"),
    ],
)
def test_a_schema_on_something_that_is_no_sequence_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        declared(x={})([{"x": value}, {"x": value}])


def test_shapes_that_a_schema_cannot_pad_are_refused():
    with pytest.raises(ValueError, match=r"outside sequence_dim=0.*\(2, 3\), \(2, 4\)"):
        declared(x={})([{"x": torch.ones(2, 3)}, {"x": torch.ones(2, 4)}])
    with pytest.raises(ValueError, match="out of range"):
        declared(x={"sequence_dim": 2})([{"x": torch.ones(2, 3)}])
    with pytest.raises(ValueError, match="out of range"):
        declared(x={"sequence_dim": -3})([{"x": torch.ones(2, 3)}])
    with pytest.raises(ValueError, match="different numbers of dimensions"):
        declared(x={})([{"x": torch.ones(2)}, {"x": torch.ones(2, 1)}])


def test_derived_fields_overwrite_nothing():
    with pytest.raises(ValueError, match="'n', derived from 'x', is already a field"):
        declared(x={"length_field": "n"})([{"x": torch.ones(2), "n": 2}])
    with pytest.raises(ValueError, match="inside a field that is no mapping"):
        declared(x={"length_field": "n.x"})([{"x": torch.ones(2), "n": 2}])


def test_the_items_are_left_as_they_were():
    item = {"input_ids": [1, 2], "m": {"x": torch.ones(2)}}
    collate([item, {"input_ids": [1], "m": {"x": torch.ones(1)}}])
    assert list(item) == ["input_ids", "m"]
    assert list(item["m"]) == ["x"]


def test_the_fingerprint_is_json_and_tells_settings_apart():
    plain = collate.resume_fingerprint()
    assert json.loads(json.dumps(plain)) == plain
    assert declared(mel={"sequence_dim": 1}).resume_fingerprint() != plain


# The default collator


def test_default_collator_by_kind_of_item():
    pairs = [(torch.ones(2), 1), (torch.zeros(2), 2)]
    features, targets = default_data_collator(pairs)
    assert isinstance(default_data_collator(pairs), tuple)
    assert features.tolist() == [[1, 1], [0, 0]]
    assert targets.tolist() == [1, 2]
    assert isinstance(default_data_collator([[1, 2], [3, 4]]), list)
    assert default_data_collator([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert default_data_collator(["a", "b"]) == ["a", "b"]
    mixed = default_data_collator([({"input_ids": [1]}, "a"), ({"input_ids": [1, 2]}, "b")])
    assert mixed[0]["attention_mask"].tolist() == [[True, False], [True, True]]
    assert mixed[1] == ["a", "b"]


def test_default_collator_pads_nothing_outside_mappings():
    with pytest.raises(ValueError, match=r"different shapes.*data_collator"):
        default_data_collator([torch.ones(2), torch.ones(3)])
    with pytest.raises(ValueError, match="different lengths"):
        default_data_collator([(1, 2), (1,)])

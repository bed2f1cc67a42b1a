"""D1-D6: what items are, how they become batches, and what nobody invents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from recipes import Frames, Regressor, arguments, collate, seeded, trainer_for

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.errors import DataError, VoiceHubError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.trainer.trainer import Trainer
from voicehub.training import DataCollatorForTTSTraining, TTSFieldSchema


class Echo(torch.nn.Module):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.inputs: dict[str, Any] = {}

    def forward(self, **inputs: Any) -> dict[str, Any]:
        self.inputs = inputs
        return {"loss": self.layer.weight.sum()}


def echo(batch: dict[str, Any]) -> dict[str, Any]:
    model = Echo()
    spec = ModelTrainingSpec("contract-echo", "contract", support="native", module_paths=("",))
    adapter = TrainingAdapter(model, spec)
    adapter.setup()
    adapter.execute_training_phase(TrainingContext(adapter.phases[0], batch))
    return model.inputs


def test_D1_items_are_mappings() -> None:
    portable = {
        "input_ids": torch.tensor([1, 2]),
        "attention_mask": torch.tensor([True, True]),
        "input_values": torch.ones(4),
        "labels": torch.tensor([3]),
        "model_inputs": {"mel": torch.ones(2, 3)},
        "training_phase": "generator",
    }
    batch = DataCollatorForTTSTraining()([portable, portable])
    assert set(batch) == set(portable) and batch["model_inputs"]["mel"].shape == (2, 2, 3)
    with pytest.raises(TypeError, match="mapping"):
        DataCollatorForTTSTraining()([torch.ones(2)])


def test_D2_model_inputs_are_flattened_and_never_given_twice() -> None:
    value = torch.ones(1)
    assert set(echo({"labels": value, "model_inputs": {"mel": value}})) == {"labels", "mel"}
    with pytest.raises(ValueError, match="mel"):
        echo({"mel": value, "model_inputs": {"mel": value}})


class TestD3:
    """The collator looks at structure alone."""

    collator = DataCollatorForTTSTraining()

    def pair(self, name: str, first: Any, second: Any) -> Any:
        return self.collator([{name: first}, {name: second}])

    def test_D3_pads_the_first_dimension_or_the_last(self) -> None:
        first = self.pair("x", torch.ones(3, 2), torch.ones(1, 2))["x"]
        assert first.shape == (2, 3, 2) and first[1, 1:].eq(0.0).all()
        last = self.pair("mel", torch.ones(80, 3), torch.ones(80, 2))["mel"]
        assert last.shape == (2, 80, 3) and last[1, :, 2].eq(0.0).all()

    @pytest.mark.parametrize("name", ["labels", "label_ids"])
    def test_D3_integer_labels_pad_with_the_ignored_index(self, name: str) -> None:
        batch = self.pair(name, torch.tensor([1, 2]), torch.tensor([3]))
        assert batch[name].tolist() == [[1, 2], [3, -100]]
        assert self.pair(name, torch.ones(2), torch.ones(1))[name][1, 1] == 0.0

    def test_D3_a_mask_comes_of_padded_input_ids_alone(self) -> None:
        batch = self.pair("input_ids", torch.tensor([5, 6]), torch.tensor([7]))
        assert batch["attention_mask"].tolist() == [[True, True], [True, False]]
        assert "attention_mask" not in self.pair("codes", torch.tensor([5, 6]), torch.tensor([7]))

    def test_D3_one_phase_a_batch(self) -> None:
        assert self.pair("training_phase", "generator", "generator") == {
            "training_phase": "generator"
        }
        with pytest.raises(ValueError, match="training_phase"):
            self.pair("training_phase", "generator", "discriminator")

    def test_D3_strings_stay_lists_and_nothing_is_refused(self) -> None:
        assert self.pair("text", "a", "bc") == {"text": ["a", "bc"]}
        with pytest.raises(ValueError, match="non-empty batch"):
            self.collator([])


class TestD4:
    """Declared fields."""

    items = (
        {"model_inputs": {"mel": torch.ones(5, 2)}},
        {"model_inputs": {"mel": torch.ones(3, 2)}},
    )

    def batch(self, *items: Any, path: str = "model_inputs.mel", **schema: Any) -> Any:
        collator = DataCollatorForTTSTraining(field_schemas={path: TTSFieldSchema(**schema)})
        return collator(list(items or self.items))

    def test_D4_side_value_and_multiple(self) -> None:
        mel = self.batch(padding_side="left", padding_value=-1.0, pad_to_multiple_of=4)
        padded = mel["model_inputs"]["mel"]
        assert padded.shape == (2, 8, 2)
        assert padded[1, :5].eq(-1.0).all() and padded[1, 5:].eq(1.0).all()

    def test_D4_derived_names_sit_beside_the_field_or_at_the_root(self) -> None:
        batch = self.batch(length_field="mel_lengths", mask_field="masks.mel")
        assert batch["model_inputs"]["mel_lengths"].tolist() == [5, 3]
        assert batch["masks"]["mel"].sum(-1).tolist() == [5, 3]

    def test_D4_a_missing_field_is_an_error_or_an_empty_sequence(self) -> None:
        items = [self.items[0], {"model_inputs": {"other": torch.ones(1)}}]
        with pytest.raises(VoiceHubError, match=r"model_inputs\.mel.*allow_missing"):
            self.batch(*items)
        items = [
            {**self.items[0], "id": "a"},
            {"model_inputs": {}, "id": "b"},
        ]
        batch = self.batch(*items, allow_missing=True, length_field="lengths")
        assert batch["model_inputs"]["lengths"].tolist() == [5, 0]

    def test_D4_lengths_of_the_input_only_when_asked_for(self) -> None:
        items = [{"input_ids": torch.tensor([1, 2])}, {"input_ids": torch.tensor([3])}]
        assert "input_lengths" not in DataCollatorForTTSTraining()(items)
        asked = DataCollatorForTTSTraining(return_input_lengths=True)(items)
        assert asked["input_lengths"].tolist() == [2, 1]


def test_D5_nothing_is_invented() -> None:
    items = [
        {"codes": torch.tensor([[1, 2], [3, 4]]), "mel": torch.ones(4, 2), "text": "a"},
        {"codes": torch.tensor([[5, 6], [7, 8]]), "mel": torch.ones(2, 2), "text": "b"},
    ]
    batch = DataCollatorForTTSTraining()(items)
    assert set(batch) == {"codes", "mel", "text"}
    assert torch.equal(batch["codes"], torch.stack([item["codes"] for item in items]))


class TestD6:
    """Meaning comes from the data set, the collator or the model's hook."""

    def test_D6_a_dataset_brings_its_collate_fn_unless_one_is_given(self, tmp_path: Path) -> None:
        used: list[str] = []

        class Own(Frames):
            def collate_fn(self, items: Any) -> Any:
                used.append("dataset")
                return collate(items)

        def explicit(items: Any) -> Any:
            used.append("explicit")
            return collate(items)

        for collator in (None, explicit):
            Trainer(
                model=seeded(Regressor),
                args=arguments(tmp_path / str(bool(collator)), max_steps=1),
                train_dataset=Own(8),
                data_collator=collator,
            ).train()
        assert used == ["dataset", "explicit"]

    def test_D6_the_model_may_prepare_its_inputs(self) -> None:
        class Preparing(Echo):
            def prepare_training_inputs(self, batch: dict[str, Any]) -> dict[str, Any]:
                return {**batch, "prepared": True}

        model = Preparing()
        spec = ModelTrainingSpec("contract-d6", "contract", support="native", module_paths=("",))
        adapter = TrainingAdapter(model, spec)
        adapter.setup()
        adapter.execute_training_phase(TrainingContext(adapter.phases[0], {"x": torch.ones(1)}))
        assert model.inputs["prepared"] is True

    def test_D6_a_processor_is_saved_and_never_applied(self, tmp_path: Path) -> None:
        class Processor:
            def __call__(self, *arguments: Any, **options: Any) -> Any:
                raise AssertionError("applied to data")

            def save_pretrained(self, directory: Any) -> None:
                (Path(directory) / "processor_config.json").write_text("{}")

        trainer = trainer_for("plain", tmp_path / "run", options={"processing_class": Processor()})
        trainer.train()
        assert (trainer.save_model() / "processor_config.json").is_file()


def test_D3_fields_that_differ_between_items_are_refused() -> None:
    with pytest.raises(DataError, match="'a' is missing from item 1"):
        DataCollatorForTTSTraining()([{"a": torch.ones(1)}, {"b": torch.ones(1)}])

"""Updates that were not finite are dumped with everything that running them again takes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from voicehub.data.keyed_random import numpy_generator
from voicehub.errors import CheckpointError, DataError, NonFiniteError
from voicehub.trainer.replay import replay
from voicehub.trainer.trainer import Trainer


class Net(nn.Module):
    """Dropout and a square root, whose gradient is infinite at 0 while its value is finite."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)
        self.losses: list[float] = []

    def forward(self, features: Tensor) -> dict[str, Any]:
        hidden = nn.functional.dropout(torch.tanh(self.body(features)), 0.3, self.training)
        loss = (self.head(hidden).square() + features.sum(-1, keepdim=True).sqrt()).mean()
        self.losses.append(float(loss.detach()))
        return {"loss": loss, "num_items": len(features)}


class Rows:
    """Keyed draws; row ``bad`` makes the loss NaN in the second epoch alone."""

    def __init__(self, bad: int | None = None, prefix: str = "row") -> None:
        self.bad = bad
        self.prefix = prefix

    def __len__(self) -> int:
        return 12

    def get_item(self, index: int, key: Any) -> dict[str, Any]:
        drawn = numpy_generator(*key).random(3).astype("float32")
        features = torch.from_numpy(drawn)
        if index == self.bad and key.epoch == 1:
            features = features - 10.0
        return {"id": f"{self.prefix}-{index}", "features": features}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "features": torch.stack([item["features"] for item in items]),
        "batch_info": {"ids": [item["id"] for item in items]},
    }


def build(toy: Any, run_dir: Path, data: Any, model: nn.Module | None = None, **more: Any) -> Any:
    torch.manual_seed(0)
    settings = {
        "output_dir": str(run_dir),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 8,
        **more,
    }
    return Trainer(
        model=model or Net(),
        args=toy.arguments(**settings),
        train_dataset=data,
        data_collator=collate,
    )


@pytest.fixture
def dumped(toy: Any) -> tuple[Path, Trainer]:
    trainer = build(toy, toy.path / "run", Rows(bad=7))
    trainer.train()
    [dump] = (toy.path / "run" / "nonfinite").iterdir()
    return dump, trainer


def test_a_dump_says_what_the_update_was_made_of(dumped: tuple[Path, Trainer]) -> None:
    dump, trainer = dumped
    document = json.loads((dump / "dump.json").read_text())
    assert trainer.state.skipped_steps == 1
    assert document["reason"] == "the loss is nan"
    assert dump.name == f"step-{document['step']}"
    batches = document["micro_batches"]
    assert [len(batch["ids"]) for batch in batches] == [2, 2]
    ids = [name for batch in batches for name in batch["ids"]]
    assert "row-7" in ids
    keys = [key for batch in batches for key in batch["keys"]]
    assert [f"row-{key[3]}" for key in keys] == ids
    assert {key[1] for key in keys} == {1}


def test_a_replay_repeats_the_update_bit_by_bit(toy: Any, dumped: tuple[Path, Trainer]) -> None:
    dump, trainer = dumped
    bad = next(n for n, loss in enumerate(trainer.model.losses) if math.isnan(loss))
    window = trainer.model.losses[bad // 2 * 2 : bad // 2 * 2 + 2]
    model = Net()  # other weights, which the dump replaces
    again = build(toy, toy.path / "replayed", Rows(bad=7), model)
    result = replay(again, dump)
    # The batches, the weights and the dropout masks were the same: so is the finite loss.
    assert sorted(map(str, model.losses[:2])) == sorted(map(str, window))
    assert math.isnan(result.losses["default"]) and not result.is_finite
    assert [sample.problem for sample in result.samples] == [None] * 4
    assert [s.id for s in result.samples if s.loss is not None and math.isnan(s.loss)] == ["row-7"]
    assert result.nonfinite_weights == []
    assert not (toy.path / "replayed").exists(), "a replay writes nothing"


class Careless(Net):
    """Draws from every global generator, as masks and layer drop of published models do."""

    def forward(self, features: Tensor) -> dict[str, Any]:
        shift = random.random() + abs(np.random.randn()) + float(torch.rand(()))
        return super().forward(features * (1.0 + shift))


def test_a_replay_repeats_draws_of_numpy_and_python(toy: Any) -> None:
    model = Careless()
    build(toy, toy.path / "run", Rows(bad=7), model).train()
    [dump] = (toy.path / "run" / "nonfinite").iterdir()
    bad = next(n for n, loss in enumerate(model.losses) if math.isnan(loss))
    window = model.losses[bad // 2 * 2 : bad // 2 * 2 + 2]
    again = Careless()
    replay(build(toy, toy.path / "replayed", Rows(bad=7), again), dump)
    assert list(map(str, again.losses[:2])) == list(map(str, window))
    assert any(map(math.isfinite, window)), "a window without a finite loss proves nothing"


class DivideByZero(Net):
    def forward(self, features: Tensor) -> dict[str, Any]:
        output = super().forward(features)
        output["loss"] = output["loss"] + (self.body.weight[0, 0] * 0).sqrt()
        return output


def test_infinite_gradients_are_named(toy: Any) -> None:
    """The loss is finite, the gradient of one parameter is not."""
    with pytest.raises(NonFiniteError):
        build(toy, toy.path / "run", Rows(), DivideByZero()).train()
    dumps = sorted(path.name for path in (toy.path / "run" / "nonfinite").iterdir())
    assert dumps == ["step-0", "step-0-2", "step-0-3"], "three and no more"
    again = build(toy, toy.path / "replayed", Rows(), DivideByZero())
    result = replay(again, toy.path / "run" / "nonfinite" / "step-0-2")
    assert math.isfinite(result.losses["default"])
    assert result.nonfinite_gradients == ["body.weight"]
    assert math.isnan(result.gradient_norms["body"])
    assert math.isfinite(result.gradient_norms["head"])


class BrokenActivation(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value / 0.0


def test_the_first_module_with_an_infinite_output_is_named(toy: Any) -> None:
    def trainer(name: str) -> Trainer:
        return Trainer(
            model=nn.Sequential(nn.Linear(3, 3), BrokenActivation(), Mean()),
            args=toy.arguments(output_dir=str(toy.path / name), max_steps=1),
            train_dataset=torch.utils.data.TensorDataset(torch.ones(4, 3)),
        )

    with pytest.raises(NonFiniteError):
        trainer("run").train()
    result = replay(trainer("replayed"), toy.path / "run" / "nonfinite" / "step-0")
    assert result.first_nonfinite_module == "1"


class Mean(nn.Module):
    def forward(self, value: Tensor) -> tuple[Tensor]:
        return (value.mean(),)


def test_changed_data_and_foreign_directories_are_refused(
    toy: Any, dumped: tuple[Path, Trainer]
) -> None:
    dump, _ = dumped
    with pytest.raises(DataError, match=r"changed since.*row-.*renamed-"):
        replay(build(toy, toy.path / "x", Rows(bad=7, prefix="renamed")), dump)
    with pytest.raises(CheckpointError, match=r"no dump\.json"):
        replay(build(toy, toy.path / "x", Rows()), toy.path)


def test_a_dump_that_cannot_be_written_does_not_end_the_run(
    toy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("voicehub.trainer.nonfinite.write_tensors", full)
    trainer = build(toy, toy.path / "run", Rows(bad=7))
    trainer.train()
    assert trainer.state.global_step == 8
    assert "could not be dumped" in caplog.text
    assert list((toy.path / "run" / "nonfinite").iterdir()) == []

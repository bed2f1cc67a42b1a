"""Out of memory in a step: the batch is described, and may be run again in halves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.errors import RecipeError
from voicehub.trainer.memory import IndivisibleBatchError, StepOutOfMemoryError, halved
from voicehub.trainer.micro_batch import MicroBatch


class Greedy(nn.Module):
    """A frame regressor on a device that holds at most ``room`` samples of one micro-batch."""

    def __init__(self, inner: nn.Module, room: int) -> None:
        super().__init__()
        self.inner = inner
        self.room = room
        self.sizes: list[int] = []

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> Any:
        self.sizes.append(len(features))
        output = self.inner(features, mask, targets)
        if len(features) > self.room:
            # Half of the work is done by then, as on a device.
            output["loss"] = Exhausted.apply(output["loss"])
        return output


class Exhausted(torch.autograd.Function):
    """Runs out of memory in the backward."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def train(toy: Any, room: int, **settings: Any) -> tuple[Greedy, dict[str, Tensor]]:
    torch.manual_seed(0)
    count_items = settings.pop("count_items", True)
    model = Greedy(toy.FrameRegressor(count_items=count_items).to(torch.float64), room)
    start = toy.weights(model)
    toy.run(
        model=model,
        train=toy.Frames(22, dtype=torch.float64),
        trainer={"data_collator": collate_with_ids(toy)},
        per_device_train_batch_size=5,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        optim="sgd",
        learning_rate=0.1,
        **settings,
    )
    return model, start


def collate_with_ids(toy: Any) -> Any:
    def collate(items: list[dict[str, Tensor]]) -> dict[str, Any]:
        names = [f"clip-{len(item['targets'])}-frames" for item in items]
        return {**toy.collate(items), "batch_info": {"ids": names}}

    return collate


def test_the_message_holds_ids_shapes_and_advice(toy: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        train(toy, room=4)
    assert isinstance(caught.value, StepOutOfMemoryError)
    told = str(caught.value)
    assert "phase 'default' on a micro-batch of 5 samples (clip-" in told
    assert "features (5, " in told and "mask (5, " in told
    assert "oom_retry_halves" in told and "2.00 GiB" in told


@pytest.mark.parametrize("room", [4, 2, 1])
def test_halves_give_the_same_update(toy: Any, room: int) -> None:
    whole, start = train(toy, room=99)
    parts, _ = train(toy, room=room, oom_retry_halves=True)
    assert max(parts.sizes) == 5 and min(parts.sizes) <= room
    assert toy.distance(toy.weights(whole), toy.weights(parts), start) <= 1e-9


def test_a_single_sample_that_does_not_fit_ends_the_run(toy: Any) -> None:
    with pytest.raises(StepOutOfMemoryError, match=r"of 1 samples.*Not retried.*one sample"):
        train(toy, room=0, oom_retry_halves=True)


def test_a_loss_without_items_is_not_retried(toy: Any) -> None:
    with pytest.raises(RecipeError, match="num_items"):
        train(toy, room=4, oom_retry_halves=True, count_items=False)


def test_a_batch_is_cut_by_samples_and_nothing_else() -> None:
    batch = MicroBatch(
        {"x": torch.arange(6).reshape(3, 2), "nested": {"names": ["a", "b", "c"]}, "rate": 16000},
        {"ids": ["a", "b", "c"], "audio_seconds": 3.0},
        3,
    )
    first, second = halved([batch])
    assert (first.size, second.size) == (2, 1)
    assert first.inputs["x"].tolist() == [[0, 1], [2, 3]]
    assert second.inputs == {
        "x": second.inputs["x"], "nested": {"names": ["c"]}, "rate": 16000,
    }  # fmt: skip
    assert first.info["ids"] == ["a", "b"]
    pair = MicroBatch((torch.zeros(2, 3), torch.ones(2)), {}, 2)
    assert [part.inputs[1].shape for part in halved([pair])] == [(1,), (1,)]


@pytest.mark.parametrize(
    "inputs", [{"x": torch.zeros(2, 3), "w": torch.zeros(5)}, {"n": torch.tensor(3.0)}]
)
def test_what_is_not_one_entry_a_sample_is_named(inputs: Any) -> None:
    with pytest.raises(IndivisibleBatchError, match=r"inputs\['[wn]'\] has the shape"):
        halved([MicroBatch(inputs, {}, 2)])

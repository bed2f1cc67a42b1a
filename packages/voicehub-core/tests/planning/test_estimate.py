"""Cards, sharing, advice, and the estimate of a plain recipe against torch's own record."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.planning import cards
from voicehub.planning.advice import Situation, how_to_fit, room_on
from voicehub.planning.allocations import (
    ACTIVATIONS,
    AVERAGES,
    BUCKETS,
    GRADIENTS,
    OPTIMIZER,
    WEIGHTS,
)
from voicehub.planning.cards import GIB
from voicehub.planning.estimate import Estimate, estimate
from voicehub.planning.sharing import GATHERED, WHOLE_GRADIENTS, Blocks, on_each_process
from voicehub.planning.work import Work
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer

MEMORY = {WEIGHTS: 400, GRADIENTS: 400, OPTIMIZER: 800, ACTIVATIONS: 1000}


def test_the_table_is_in_ascending_order_and_names_are_suggested() -> None:
    sizes = [card.gib for card in cards.cards()]
    assert sizes == sorted(sizes) and len({card.name for card in cards.cards()}) == len(sizes)
    assert cards.card_named("h100").gib == 80
    with pytest.raises(ConfigurationError, match="Did you mean 'RTX-4090'"):
        cards.card_named("RTX4090")


def test_the_smallest_card_that_holds_it() -> None:
    edge = (16 * cards.GIB - cards.CONTEXT_BYTES) / (1 + cards.FRAGMENTATION)
    assert cards.smallest(edge * 0.999).gib == 16  # type: ignore[union-attr]
    assert cards.smallest(edge * 1.001).gib > 16  # type: ignore[union-attr]
    assert cards.smallest(1000 * cards.GIB) is None


def test_time_is_bounded_by_both_roofs() -> None:
    card = cards.Card("c", 16, fp32_tflops=10, half_tflops=100, gb_per_s=1000, bf16=True)
    compute = Work(flops=6e12, needed_bytes=1, moved_bytes=1, ops=0)
    assert card.seconds(compute, half=False) == pytest.approx((1.0, 3.0))
    assert card.seconds(compute, half=True)[0] == pytest.approx(0.1)
    memory = Work(flops=1, needed_bytes=1e12, moved_bytes=4e12, ops=0)
    assert card.seconds(memory, half=True) == pytest.approx((1.0, 4.0))


def test_what_each_of_several_processes_holds() -> None:
    blocks = Blocks(root=40, largest=100, trainable=400, trainable_root=30, trainable_largest=90)
    assert on_each_process(MEMORY, "torch", 1, blocks) == MEMORY
    assert on_each_process(MEMORY, "ddp", 4, blocks) == MEMORY  # messages were rehearsed
    shared = {WEIGHTS: 100, GRADIENTS: 100, OPTIMIZER: 200, ACTIVATIONS: 1000}
    gathered = 40 + 2 * 100
    fsdp = on_each_process({**MEMORY, BUCKETS: 9}, "fsdp", 4, blocks)
    assert fsdp == {**shared, GATHERED: gathered, WHOLE_GRADIENTS: 30 + 90}
    later = on_each_process(MEMORY, "fsdp", 4, blocks, accumulates=True)
    assert later == {**shared, GATHERED: gathered, WHOLE_GRADIENTS: 400}
    with pytest.raises(ConfigurationError, match="2 need ddp or fsdp"):
        on_each_process(MEMORY, "torch", 2, blocks)


# -- advice ----------------------------------------------------------------------------------


def tight(**changes: Any) -> Situation:
    """20 GiB of activations beside 8 GiB that do not depend on the batch, on a card of 16."""
    card = cards.Card("c", 16, 10, 100, 1000, bf16=False)
    values: dict[str, Any] = {
        "memory": {
            WEIGHTS: 2 * GIB,
            GRADIENTS: 2 * GIB,
            OPTIMIZER: 4 * GIB,
            ACTIVATIONS: 20 * GIB,
        },
        "room": room_on(card),
        "bf16": card.bf16,
        "half": False,
        "config": {"data": {"batches": {"max_padded_seconds": 100.0}}, "training": {}},
        "parts": {"encoder": 300, "head": 100},
    }
    values |= changes
    return Situation(**{"alone": values["memory"], **values})


def test_advice_begins_with_what_costs_least() -> None:
    model = {"encoder": {"num_hidden_layers": 12}}
    config = {**tight().config, "model": model}
    found = how_to_fit(tight(config=config, memory={**tight().memory, ACTIVATIONS: 10 * GIB}))
    share = (tight().room - 8 * GIB) / (10 * GIB)
    assert found[0].startswith(
        f"data.batches.max_padded_seconds={100 * share:.3g} (now 100.0), and more"
    )
    assert [line.split("=")[0] for line in found[1:5]] == [
        "training.fp16",
        "training.gradient_checkpointing",
        "training.freeze",
        "model.encoder.num_hidden_layers",
    ]
    assert found[3].startswith('training.freeze=["encoder"]') and "4.50 GiB" in found[3]
    assert found[4].startswith("model.encoder.num_hidden_layers=9 (now 12): fewer layers")
    # 8 GiB over n cards beside 10 GiB of activations that each of them has.
    count = math.ceil(8 * GIB / (tight().room - 10 * GIB))
    assert found[5].startswith(f"more processes: --nproc {count} with training.strategy=fsdp")


def test_more_processes_than_there_are_share_out_what_a_lone_one_holds() -> None:
    shared = {**tight().memory, WEIGHTS: GIB, GRADIENTS: GIB, OPTIMIZER: 2 * GIB}
    shared[ACTIVATIONS] = 12 * GIB
    found = how_to_fit(tight(memory=shared, alone=tight().memory, processes=2))
    count = math.ceil(8 * GIB / (tight().room - 12 * GIB))
    assert count > 2 and found[-1].startswith(f"more processes: --nproc {count}")


def test_advice_says_nothing_that_would_not_help() -> None:
    found = how_to_fit(tight())  # the activations alone are too many
    assert not any("more processes" in line for line in found)
    none = how_to_fit(tight(memory={**tight().memory, ACTIVATIONS: 0}, half=True))
    assert not any("max_padded" in line or "16=true" in line for line in none)
    assert not any("checkpointing" in line for line in none)
    lone = how_to_fit(tight(parts={"all": 400}))
    assert any(line.startswith("train less (training.freeze)") for line in lone)
    checkpointing = {"training": {"gradient_checkpointing": True}}
    assert not any("checkpointing" in line for line in how_to_fit(tight(config=checkpointing)))


# -- a whole estimate ------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """x (B, 64), y (B,)."""
        return {"loss": nn.functional.cross_entropy(self.layers(x), y)}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(64, generator=generator), "y": torch.tensor(index % 10)}


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[..., Estimate]:
    def make(processes: int = 1, card: str | None = None, **settings: Any) -> Estimate:
        args = TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=32, **settings
        )
        one = TrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            per_device_train_batch_size=32,
            **{**settings, "strategy": "torch"},
        )
        return estimate(
            "net",
            lambda strategy: Trainer(
                Net(), one, train_dataset=Rows(), training_strategy=strategy(one)
            ),
            args,
            {"training": {}},
            [],
            processes=processes,
            card=None if card is None else cards.card_named(card),
        )

    return make


def test_an_estimate_of_a_plain_module(plan_of: Callable[..., Estimate]) -> None:
    numbers = 64 * 256 + 256 + 256 * 10 + 10
    found = plan_of(max_steps=6, save_steps=3, ema_decay=0.9)
    assert found.rehearsal.parameters.total == found.rehearsal.parameters.trainable == numbers
    assert found.memory[WEIGHTS] == found.memory["averages"] == 4 * numbers
    # AdamW: two moments, and a step count for each of four tensors.
    assert found.memory[OPTIMIZER] == 2 * 4 * numbers + 4 * 4
    assert found.memory["inputs"] == 32 * (64 * 4 + 8)
    assert found.disk.models == 2 * 4 * numbers
    assert found.disk.checkpoints == 3 * (4 * 4 * numbers + 16)  # two kept, one being written
    assert found.fits and found.card is not None and found.card.name == "T4"
    assert found.rehearsal.updates_per_epoch == 3 and not found.advice
    forward = 2 * 32 * (64 * 256 + 256 * 10)
    # No gradient for the input: the first layer has one product in its backward.
    assert found.rehearsal.batch_work.flops == 3 * forward - 2 * 32 * 64 * 256
    assert found.epoch_seconds is not None and 0 < found.epoch_seconds[0] <= found.epoch_seconds[1]
    assert found.as_dict()["peak_bytes"] == found.peak


def test_several_processes_and_a_card_without_bfloat16(plan_of: Callable[..., Estimate]) -> None:
    lone = plan_of()
    shared = plan_of(processes=2, strategy="fsdp")
    assert shared.memory[OPTIMIZER] == -(-lone.memory[OPTIMIZER] // 2)
    half = plan_of(bf16=True)
    assert half.half and half.card is not None and half.card.bf16


def test_messages_of_gradients_are_there_when_the_backward_ends(
    plan_of: Callable[..., Estimate],
) -> None:
    """Plain SGD: the peak is the end of the backward, of gradients and of their messages."""
    numbers = 64 * 256 + 256 + 256 * 10 + 10
    lone, several = plan_of(optim="sgd"), plan_of(processes=2, strategy="ddp", optim="sgd")
    assert OPTIMIZER not in several.memory
    assert several.memory[GRADIENTS] == several.memory[BUCKETS] == 4 * numbers
    assert lone.peak < several.peak <= lone.peak + 4 * numbers


def test_averages_count_where_they_are_kept(plan_of: Callable[..., Estimate]) -> None:
    widths = {"posthoc_ema": True, "posthoc_ema_sigma_rels": [0.05, 0.1]}
    both = plan_of(**widths)
    assert both.memory[AVERAGES] == 2 * both.memory[WEIGHTS]
    offloaded = plan_of(**widths, posthoc_ema_offload=True)
    assert AVERAGES not in offloaded.memory


def test_parts_are_those_that_a_freeze_rule_can_name(plan_of: Callable[..., Estimate]) -> None:
    parts = plan_of().rehearsal.parameters.parts
    assert parts == {"layers.0": 4 * (64 * 256 + 256), "layers.2": 4 * 2570}
    frozen = plan_of(freeze=["layers.0"]).rehearsal.parameters
    assert frozen.parts == {"layers.2": 4 * 2570} and frozen.trainable == 2570

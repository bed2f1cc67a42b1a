"""What the tests of several processes run on every rank; a module, since it is imported there."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from recipes import (
    Frames,
    Gan,
    GanAdapter,
    Regressor,
    arguments,
    build,
    collate,
    gan_spec,
    seeded,
    trainer_for,
)
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.strategies.local_link import SWITCH
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.strategies.world import joined
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.trainer import Trainer

DTYPES = {"float64": torch.float64, "float32": torch.float32}
#: Seconds that no rank is late by, on however busy a machine.
UNHURRIED = 600.0


def make(
    recipe: str,
    directory: Path,
    *,
    size: int = 22,
    dtype: str = "float64",
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    """A Trainer of a recipe of the contract's tests, or of ``lora`` or ``norm``."""
    data = Frames(size, dtype=DTYPES[dtype])
    if settings.get("strategy") != "accelerate":  # which has a time limit of its own
        settings = {"ddp_timeout": UNHURRIED, **settings}
    if recipe in ("plain", "gan", "hybrid"):
        return _cast(trainer_for(recipe, directory, data=data, options=options, **settings), dtype)
    model = seeded({"lora": _lora, "norm": BatchNormed}[recipe])
    given = {"data_collator": collate, "train_dataset": data, **(options or {})}
    return _cast(Trainer(model=model, args=arguments(directory, **settings), **given), dtype)


def _cast(trainer: Trainer, dtype: str) -> Trainer:
    trainer.model.to(DTYPES[dtype])
    return trainer


class LowRank(nn.Module):
    """A frozen layer and a trained correction of low rank, as LoRA has it."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, 2, bias=False, dtype=torch.float64)
        self.up = nn.Linear(2, frozen.out_features, bias=False, dtype=torch.float64)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.up(self.down(x))
        return self.frozen(x) + change


def _lora() -> nn.Module:
    model, _ = build("plain")
    model.hidden, model.output = LowRank(model.hidden), LowRank(model.output)
    return model


class BatchNormed(nn.Module):
    """A regression whose statistics are those of a micro-batch, unused parameters included."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 6, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(6, dtype=torch.float64)
        self.output = nn.Linear(6, 1, dtype=torch.float64)
        self.never_used = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Any]:
        hidden = self.norm(self.hidden(features).flatten(0, 1)).view(*features.shape[:2], 6)
        predictions = self.output(hidden).squeeze(-1)
        frames = mask.sum()
        loss = ((predictions - targets).square() * mask).sum() / frames
        return {"loss": loss, "num_items": frames, "logits": predictions}


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """Whole weights and buffers by name."""
    whole, module = trainer.strategy.whole_tensor, trainer.graph.adapter.module
    found = {name: whole(p).clone() for name, p in module.named_parameters()}
    return {**found, **{name: b.clone() for name, b in module.named_buffers()}}


def distance(first: Any, second: Any, start: Any) -> float:
    """||dw - dw'|| / ||dw||."""
    one = torch.cat([(first[n] - start[n]).double().flatten() for n in start])
    two = torch.cat([(second[n] - start[n]).double().flatten() for n in start])
    assert float(one.norm()) > 0, "nothing was trained"
    return float((one - two).norm() / one.norm())


def result(trainer: Trainer) -> dict[str, Any]:
    """What runs are compared by."""
    rows = trainer.state.log_history
    losses = [(row["step"], row["loss"], row["grad_norm"]) for row in rows if "loss" in row]
    average = {}
    if trainer.averaging is not None:
        state = trainer.averaging.state_dict()
        kinds = state.get("averages", {"": state})
        average = {f"{n}{k}": v.clone() for n, s in kinds.items() for k, v in s["shadows"].items()}
    return {
        "weights": weights(trainer),
        "average": average,
        "losses": losses,
        "steps": trainer.state.global_step,
        "speaks": trainer.state.is_world_process_zero,
        "skipped": trainer.state.skipped_steps,
        "rows": rows,
    }


def train(directory: Path, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train each run (keywords of ``make``) and return its ``result``."""
    found = []
    for number, run in enumerate(runs):
        watch = Positions()
        trainer = make(directory=directory / str(number), options={"callbacks": [watch]}, **run)
        trainer.train()
        found.append({**result(trainer), "positions": watch.by_step})
    return found


def train_over_gloo(directory: Path, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``train`` without the direct line between the ranks; the first task of a world."""
    os.environ[SWITCH] = "off"
    try:
        found = train(directory, runs)
    finally:
        del os.environ[SWITCH]
    world = joined()
    assert world is not None and world.link is None
    return found


def has_link() -> bool:
    """Whether the ranks have a direct line."""
    world = joined()
    return world is not None and world.link is not None


class Positions(TrainerCallback):
    """Where in the data each update ended, and what a resume has loaded."""

    def __init__(self) -> None:
        self.by_step: dict[int, tuple[int, int]] = {}
        self.loaded: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        trainer = context["trainer"]
        whole = trainer.strategy.whole_tensor
        self.loaded = {
            "weights": weights(trainer),
            "optimizer": _gathered(trainer.graph.optimizers.state_dict(), whole),
            "position": (state.train_epoch, state.train_batch_cursor),
        }

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self.by_step[state.global_step] = (state.train_epoch, state.train_batch_cursor)


def _gathered(state: Any, whole: Any) -> Any:
    if isinstance(state, Tensor):
        return whole(state).clone()
    if isinstance(state, dict):
        return {key: _gathered(value, whole) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_gathered(value, whole) for value in state)
    return state


def resume(directory: Path, step: int, run: dict[str, Any]) -> dict[str, Any]:
    """Go on from a checkpoint in its own directory; what was loaded and the ``result``."""
    watch = Positions()
    trainer = make(directory=directory, options={"callbacks": [watch]}, **run)
    trainer.train(resume_from_checkpoint=str(directory / f"checkpoint-{step}"))
    return {**result(trainer), "loaded": watch.loaded, "positions": watch.by_step}


class Trouble(Regressor):
    """A regression that goes wrong on one rank, at one of its forwards."""

    def __init__(self, kind: str, rank: int, forward: int, largest: int = 10**9) -> None:
        super().__init__()
        self.kind, self.rank, self.at, self.largest = kind, rank, forward, largest
        self.forwards = 0

    def forward(self, features: Tensor, mask: Tensor, targets: Tensor) -> dict[str, Any]:
        output = super().forward(features, mask, targets)
        self.forwards += 1
        here = self.rank == int(os.environ.get("RANK", "0")) and self.forwards == self.at
        if here and self.kind == "nan":
            output["loss"] = output["loss"] * float("nan")
        if here and self.kind == "overflow":  # in one gradient, which one rank holds under fsdp
            bias = self.output.bias * 1.0
            bias.register_hook(lambda gradient: gradient * float("inf"))
            output["loss"] = output["loss"] + (bias - bias.detach()).sum()
        if here and self.kind == "error":
            raise LookupError("the tape is torn")
        if self.kind == "stall" and self.forwards == self.at:
            _stand_still(here)
        if here and self.kind == "exit":
            os._exit(7)
        if self.kind == "memory" and len(features) > self.largest and self.rank_is_here():
            raise torch.OutOfMemoryError("no room for that many")
        return output

    def rank_is_here(self) -> bool:
        return self.rank == int(os.environ.get("RANK", "0"))


def _stand_still(here: bool) -> None:
    """One rank stands still; the others know, and from here on wait for it only a little."""
    world = joined()
    assert world is not None
    store = world.watch._store
    if here:
        store.set("tests/stands-still", "1")
        threading.Event().wait()
    store.wait(["tests/stands-still"])
    world.limit = timedelta(seconds=1.0)
    link = world.link
    if link is not None:  # over gloo the sums of gradients keep the limit that they began with
        usual = link.noticed
        link.noticed = lambda number, limit: usual(number, min(limit, 1.0))  # type: ignore[method-assign]


def in_trouble(
    directory: Path, trouble: dict[str, Any], run: dict[str, Any], limits: Any = None
) -> Any:
    """Train into trouble: the ``result``, or type and text of what was raised.

    ``limits`` are those of the watches, by rank.
    """
    model = seeded(Trouble, **trouble)
    size, settings = run.get("size", 22), {k: v for k, v in run.items() if k != "size"}
    try:
        trainer = Trainer(
            model=model,
            args=arguments(directory, **settings),
            data_collator=collate,
            train_dataset=Frames(size),
        )
        world = joined()
        if limits is not None and world is not None:
            world.watch.limits = limits[world.rank]
        trainer.train()
    except Exception as error:
        return type(error).__name__, str(error)
    return result(trainer)


def in_overflow(directory: Path, trouble: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """``in_trouble`` with the gradient scaler that fp16 has on a GPU; its scales by step."""
    scalers = []

    def create(self: SingleProcessStrategy) -> Any:
        scalers.append(torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000))
        return scalers[-1]

    usual = SingleProcessStrategy.create_grad_scaler
    SingleProcessStrategy.create_grad_scaler = create
    try:
        found = in_trouble(directory, trouble, run)
    finally:
        SingleProcessStrategy.create_grad_scaler = usual
    assert isinstance(found, dict), found
    return {**found, "scale": scalers[-1].get_scale()}


def with_joint_statistics(directory: Path, run: dict[str, Any]) -> str:
    """What is said of a model with a SyncBatchNorm."""
    model = nn.Sequential(nn.Linear(3, 3), nn.SyncBatchNorm(3))
    try:
        Trainer(
            model=model,
            args=arguments(directory, **run),
            data_collator=collate,
            train_dataset=Frames(4),
        ).train()
    except ConfigurationError as error:
        return str(error)
    return "nothing"


class Torn(Frames):
    """Data whose length one rank cannot tell."""

    def __len__(self) -> int:
        if os.environ.get("RANK") == "1":
            raise LookupError("the index is torn")
        return super().__len__()


def fails_at_the_start(directory: Path, run: dict[str, Any], limits: Any) -> tuple[str, str]:
    """Train on data that one rank cannot open: type and text of what was raised."""
    trainer = Trainer(
        model=seeded(Regressor),
        args=arguments(directory, **run),
        data_collator=collate,
        train_dataset=Torn(8),
    )
    world = joined()
    assert world is not None
    world.watch.limits = limits[world.rank]
    try:
        trainer.train()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def nothing() -> None:
    """Takes part in nothing: a world is left after it."""


class Rows(GanAdapter):
    """Evaluation rows in the order of the data."""

    def evaluation_rows(self, output: Any, inputs: Any, info: Mapping[str, Any]) -> list[Any]:
        return [float(target[0]) for target in inputs["targets"]]

    def evaluation_metrics(self, rows: Sequence[Any]) -> dict[str, float]:
        order = sum(position * row for position, row in enumerate(rows))
        return {"rows": float(len(rows)), "order": order}


def evaluate(directory: Path, size: int, run: dict[str, Any]) -> tuple[dict[str, float], Any]:
    """Metrics of a split, and the predictions' shape and sum, as this rank has them."""
    gan = seeded(Gan)
    trainer = Trainer(
        model=gan,
        training_adapter=Rows(gan, gan_spec()),
        args=arguments(directory, per_device_eval_batch_size=2, **run),
        data_collator=collate,
        train_dataset=Frames(4),
    )
    metrics = trainer.evaluate(Frames(size, seed=4))
    for name in ("eval_runtime", "eval_samples_per_second"):
        del metrics[name]
    plain = make("plain", directory / "plain", label_names=["targets"], **run)
    predicted = plain.predict(Frames(size, seed=4))
    return metrics, (predicted.predictions.shape, float(predicted.predictions.sum()))


def resume_damaged(directory: Path, step: int, run: dict[str, Any]) -> tuple[str, str, bool]:
    """Try to go on from a checkpoint: the error's type and text, and whether weights are as new."""
    trainer = make(directory=directory, **run)
    before = weights(trainer)
    try:
        trainer.train(resume_from_checkpoint=str(directory / f"checkpoint-{step}"))
    except Exception as error:
        after = weights(trainer)
        untouched = all(torch.equal(before[name], after[name]) for name in after)
        return type(error).__name__, str(error), untouched
    return "nothing", "", False

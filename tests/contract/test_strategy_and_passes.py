"""G1-G5: how a step is executed, the order of set-up, passes, strategies by name, equal updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from recipes import (
    DTYPE,
    Frames,
    arguments,
    collate,
    relative_distance,
    seeded,
    trainer_for,
    weights,
)
from torch import nn

from voicehub.errors import OptimizationError
from voicehub.optimization import (
    OptimizationCapabilities,
    OptimizationPass,
    OptimizationPlan,
    PassResult,
)
from voicehub.strategies.single import SingleProcessStrategy
from voicehub.trainer.trainer import Trainer
from voicehub.training.strategy import (
    TrainingStrategy,
    get_training_strategy,
    list_training_strategies,
    register_training_strategy,
    unregister_training_strategy,
)

OWNED = [
    *("prepare_device", "prepare_model", "prepare_training_adapter", "prepare_optimization"),
    *("prepare_dataloader", "prepare_input", "autocast_context", "create_grad_scaler"),
    *("backward", "clip_grad_norm", "optimizer_step", "scheduler_step", "zero_grad"),
    *("normalize_gradients", "no_sync", "gather_for_metrics", "execute_training_phase"),
    *("execute_prediction_phase", "unwrap_model", "state_dict", "load_state_dict"),
    "resume_signature",
]


class Recording(SingleProcessStrategy):
    """Writes down which of its methods are called, in order."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in OWNED:
            object.__getattribute__(self, "calls").append(name)
        return super().__getattribute__(name)


def recorded(tmp_path: Path, **settings: Any) -> tuple[list[str], Trainer]:
    args = arguments(tmp_path / "run", **settings)
    strategy = Recording(args)
    trainer = trainer_for(
        "plain",
        tmp_path / "run",
        options={"training_strategy": strategy, "eval_dataset": Frames(4)},
        **settings,
    )
    trainer.train()
    trainer.evaluate()
    return strategy.calls, trainer


def test_G1_the_strategy_owns_every_step_of_execution(tmp_path: Path) -> None:
    calls, _ = recorded(
        tmp_path,
        max_steps=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        save_strategy="steps",
        max_grad_norm=1e-3,
    )
    # no_sync is for several processes, unwrap_model and load_state_dict for resumes and exports.
    assert set(OWNED) - set(calls) <= {"no_sync", "unwrap_model", "load_state_dict"}
    step = [
        name
        for name in calls
        if name in ("execute_training_phase", "backward", "normalize_gradients", "clip_grad_norm",
                    "optimizer_step", "scheduler_step", "zero_grad")
    ]  # fmt: skip
    once = ["execute_training_phase", "backward"]
    tail = ["normalize_gradients", "clip_grad_norm", "optimizer_step", "zero_grad"]
    assert step == (once * 2 + tail + ["scheduler_step"]) * 2
    for name in OWNED:
        assert callable(getattr(TrainingStrategy, name))


def test_G1_autocast_and_the_scaler_are_its_own(tmp_path: Path) -> None:
    calls, trainer = recorded(tmp_path, bf16=True, max_steps=1)
    assert "autocast_context" in calls
    assert trainer._run is not None and trainer._run.saver.scaler is None


class Change(OptimizationPass):
    """Puts another layer in the place of ``hidden``, or only says so."""

    pass_id: ClassVar[str] = "change"
    capabilities = OptimizationCapabilities(persistent=True, reversible=True)

    def __init__(self, log: list[str] | None = None, **capabilities: Any) -> None:
        self.log = log if log is not None else []
        self.routed = True
        self.capabilities = OptimizationCapabilities(  # type: ignore[misc]
            **{"persistent": True, "reversible": True, **capabilities}
        )

    def manifest_configuration(self) -> dict[str, Any]:
        return {}

    def apply(self, model: Any, context: Any) -> PassResult:
        self.log.append("apply")
        if self.capabilities.changes_topology:
            model.hidden = nn.Sequential(model.hidden, nn.Linear(6, 6, dtype=DTYPE))
        return PassResult()

    def route_optimizer_parameters(self, model: nn.Module, names: Any) -> Any:
        named = list(model.named_parameters())
        return {"default": named if self.routed else named[:-1]}

    def export_portable_state(self, model: nn.Module) -> Any:
        state = dict(model.state_dict())
        return {name.replace("hidden.0.", "hidden."): v for name, v in state.items()}


def test_G2_device_then_passes_then_proxies_then_optimizers(tmp_path: Path) -> None:
    log: list[str] = []

    class Ordered(SingleProcessStrategy):
        def prepare_device(self, model: Any, *, device: str) -> Any:
            log.append("device")
            return super().prepare_device(model, device=device)

        def prepare_training_adapter(self, adapter: Any, *, device: str) -> Any:
            log.append("proxy")
            return super().prepare_training_adapter(adapter, device=device)

        def prepare_optimization(self, model: Any, optimizer: Any, scheduler: Any) -> Any:
            log.append("runtime")
            return super().prepare_optimization(model, optimizer, scheduler)

    def optimizer(name: str, named: Any, args: Any) -> Any:
        log.append("optimizer")
        return torch.optim.SGD([p for _, p in named], lr=0.1)

    options = {
        "training_strategy": Ordered(arguments(tmp_path / "run")),
        "optimizer_factory": optimizer,
        "optimization_plan": OptimizationPlan([Change(log)]),
    }
    trainer_for("plain", tmp_path / "run", options=options).train()
    assert log == ["device", "apply", "proxy", "optimizer", "runtime"]


class TestG3:
    """Passes over the graph."""

    def trainer(self, tmp_path: Path, change: Change) -> Trainer:
        options = {"optimization_plan": OptimizationPlan([change])}
        return trainer_for("plain", tmp_path / "run", options=options)

    def test_G3_a_pass_without_persistent_results_is_refused_unapplied(
        self, tmp_path: Path
    ) -> None:
        change = Change(persistent=False)
        with pytest.raises(OptimizationError, match="persistent"):
            self.trainer(tmp_path, change).train()
        assert change.log == []

    def test_G3_a_changed_topology_needs_complete_routes(self, tmp_path: Path) -> None:
        change = Change(changes_topology=True, portable_export=True)
        change.routed = False
        with pytest.raises(ValueError, match="would never train"):
            self.trainer(tmp_path, change).train()

    def test_G3_the_new_parameters_train(self, tmp_path: Path) -> None:
        trainer = self.trainer(tmp_path, Change(changes_topology=True, portable_export=True))
        start = weights(trainer)
        trainer.train()
        end = weights(trainer)
        assert "hidden.1.weight" in end
        assert not any(torch.equal(end[name], start[name]) for name in end)

    def test_G3_without_portable_export_nothing_is_written(self, tmp_path: Path) -> None:
        trainer = self.trainer(tmp_path, Change(changes_topology=True))
        with pytest.raises(OptimizationError, match="portable export"):
            trainer.save_model(tmp_path / "artifact")
        assert not (tmp_path / "artifact").exists()


def test_G4_strategies_by_name(tmp_path: Path) -> None:
    assert "torch" in list_training_strategies()
    assert get_training_strategy("torch") is SingleProcessStrategy
    register_training_strategy("contract-strategy", Recording)
    try:
        trainer = trainer_for(
            "plain", tmp_path / "run", options={"training_strategy": "contract-strategy"}
        )
        assert isinstance(trainer.strategy, Recording)
        with pytest.raises(ValueError, match="exists already"):
            register_training_strategy("contract-strategy", Recording)
    finally:
        unregister_training_strategy("contract-strategy")
    with pytest.raises(KeyError, match="Unknown training strategy"):
        trainer_for("plain", tmp_path / "x", options={"training_strategy": "contract-strategy"})
    with pytest.raises(ValueError, match="built in"):
        unregister_training_strategy("torch")


# -- G5: one global batch of 8, however it is split ---------------------------------------------

SPLITS = [(8, 1), (4, 2), (2, 4), (1, 8)]
KINDS = ("mean", "summed", "ctc", "gan", "hybrid")


class Recogniser(nn.Module):
    """CTC over frames; the mean is over utterances."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4, dtype=DTYPE)

    def forward(self, features: Any, mask: Any, labels: Any) -> dict[str, Any]:
        scores = self.layer(features).log_softmax(-1).transpose(0, 1)
        loss = nn.functional.ctc_loss(
            scores,
            labels.clamp(min=0),
            mask.sum(-1),
            (labels != -100).sum(-1),
            reduction="sum",
            zero_infinity=True,
        )
        return {"loss": loss / len(labels), "num_items": len(labels)}


def labelled(items: Any) -> dict[str, Any]:
    """Frames with one label for every four of them, at least one."""
    batch = collate(items)
    del batch["targets"]
    sizes = [max(1, len(item["targets"]) // 4) for item in items]
    labels = [torch.arange(n) % 3 + 1 for n in sizes]
    batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    return batch


class Unreduced(nn.Module):
    """Logits for a loss of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4, dtype=DTYPE)

    def forward(self, features: Any, mask: Any) -> dict[str, Any]:
        kept = mask.unsqueeze(-1)
        return {"logits": (self.layer(features) * kept).sum(1) / kept.sum(1)}


def summed(outputs: Any, labels: Any, num_items_in_batch: int) -> Any:
    """Each utterance's score of its labels, summed, over the labels of the whole window."""
    scores = outputs["logits"].log_softmax(-1)
    kept = labels != -100
    return -(scores.gather(1, labels.clamp(min=0)) * kept).sum() / num_items_in_batch


def split_run(kind: str, directory: Path, size: int, parts: int, **settings: Any) -> Trainer:
    common: dict[str, Any] = {
        "max_steps": 3,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": parts,
        "max_grad_norm": 0.0,
        **settings,
    }
    if kind in ("mean", "gan", "hybrid"):
        return trainer_for(
            "plain" if kind == "mean" else kind, directory, data=Frames(24), **common
        )
    return Trainer(
        model=seeded(Recogniser if kind == "ctc" else Unreduced),
        args=arguments(directory, **common),
        data_collator=labelled,
        train_dataset=Frames(24),
        compute_loss_func=summed if kind == "summed" else None,
    )


@pytest.mark.parametrize("optim", ["sgd", "adamw"])
@pytest.mark.parametrize("kind", KINDS)
def test_G5_equal_updates_whatever_the_split(tmp_path: Path, kind: str, optim: str) -> None:
    whole = split_run(kind, tmp_path / "whole", 8, 1, optim=optim)
    start = weights(whole)
    whole.train()
    for size, parts in SPLITS[1:]:
        run = split_run(kind, tmp_path / f"{size}x{parts}", size, parts, optim=optim)
        run.train()
        assert relative_distance(whole, run, start) <= 1e-9, (size, parts)


def test_G5_equal_updates_in_float32(tmp_path: Path) -> None:
    runs = []
    for size, parts in SPLITS:
        trainer = trainer_for(
            "plain",
            tmp_path / f"{size}",
            data=Frames(24, dtype=torch.float32),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=parts,
            optim="sgd",
            learning_rate=1.0,
            max_grad_norm=0.0,
        )
        trainer.model.float()
        start = weights(trainer)
        trainer.train()
        runs.append(trainer)
    assert max(relative_distance(runs[0], run, start) for run in runs[1:]) <= 1e-4

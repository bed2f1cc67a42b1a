"""Running a dumped update again: the same weights, the same batches, the same random draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from voicehub.adapters.context import TrainingContext
from voicehub.checkpoints.codec import decode_state
from voicehub.checkpoints.strict_json import parse_json
from voicehub.data.keyed_random import SampleKey
from voicehub.errors import CheckpointError, DataError
from voicehub.optim.gradients import GradientStash, gradients, total_norm
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.micro_batch import MicroBatch
from voicehub.trainer.nonfinite import DUMP_FILE, FORMAT, STATE_FILE, WEIGHTS_FILE
from voicehub.trainer.random_record import RandomStates

if TYPE_CHECKING:
    from voicehub.specs.phase import TrainingPhaseSpec
    from voicehub.trainer.trainer import Trainer


@dataclass
class SampleLoss:
    """One sample alone: its id, phase and loss, or why it could not run alone."""

    id: str
    phase: str
    loss: float | None
    problem: str | None = None


@dataclass
class Replay:
    """What running a dump again gave.

    Attributes:
        reason: why the update was skipped, as recorded.
        step: the step after which it was.
        losses: mean loss over items by phase, now.
        grad_norm: norm of all gradients of these phases, now.
        samples: every sample alone, in the order of the batches, with the dumped weights.
        nonfinite_weights: names of weights that were not finite before the update.
        nonfinite_gradients: names of parameters whose gradient is not finite.
        first_nonfinite_module: the first module whose output is not finite, in order of running.
        gradient_norms: norm of the gradient by module that owns parameters.
    """

    reason: str
    step: int
    losses: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0
    samples: list[SampleLoss] = field(default_factory=list)
    nonfinite_weights: list[str] = field(default_factory=list)
    nonfinite_gradients: list[str] = field(default_factory=list)
    first_nonfinite_module: str | None = None
    gradient_norms: dict[str, float] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Whether losses and gradients are all finite this time."""
        return all(map(math.isfinite, self.losses.values())) and math.isfinite(self.grad_norm)


def replay(trainer: Trainer, dump: str | Path) -> Replay:
    """Run a dumped update again, without stepping.

    Args:
        trainer: built as that of the run was: same model, data, collator and adapter. Its weights
            become those of the dump.
        dump: directory ``nonfinite/step-<n>`` of the run.

    Raises:
        CheckpointError: the dump is missing, of another format, or its samples have no keys.
        CheckpointMismatchError: its weights do not fit this model.
        DataError: a sample has another id than it had then: the data has changed.
    """
    directory = Path(dump)
    document = _read(directory)
    adapter = trainer.graph.adapter
    adapter.load_state_dict(load_file(directory / WEIGHTS_FILE))
    state = decode_state(torch.load(directory / STATE_FILE, weights_only=True))
    adapter.load_recipe_state_dict(state["recipe"])
    result = Replay(document["reason"], document["step"])
    result.nonfinite_weights = _not_finite(adapter.state_dict().items())
    feed = trainer.train_feed()
    batches = [_batch(feed, entry) for entry in document["micro_batches"]]
    adapter.train_mode()
    phases = [adapter.select_phase(name) for name in document["phases"]]
    run = _Run(trainer, document["step"], document["epoch"])
    random = RandomStates.from_plain(state["random"])
    random.restore(trainer.graph.device)
    with _first_nonfinite(adapter.module) as found:
        for phase in phases:
            result.losses[phase.name] = run.window(phase, batches)
    result.first_nonfinite_module = found[0] if found else None
    _describe_gradients(adapter.module, result)
    adapter.module.zero_grad()
    for phase in phases:
        for entry in document["micro_batches"]:
            result.samples += run.samples(feed, phase, entry, random)
    return result


class _Run:
    """Forward and backward as the accumulation window does them."""

    def __init__(self, trainer: Trainer, step: int, epoch: float) -> None:
        self.graph = trainer.graph
        self.strategy = trainer.strategy
        self.step = step
        self.epoch = epoch

    def window(self, phase: TrainingPhaseSpec, batches: list[MicroBatch]) -> float:
        """Accumulate the gradient of a phase; returns its mean loss over items."""
        total, weights = 0.0, 0.0
        stash = GradientStash(self.graph.adapter.module.parameters())
        with self.graph.adapter.phase_boundaries(phase):
            for batch in batches:
                loss, weight = self._forward(phase, batch)
                (loss * weight).backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach()) * weight
                weights += weight
        if weights not in (0.0, 1.0):
            grads = gradients(self.graph.adapter.module.parameters())
            self.strategy.normalize_gradients(grads, weights)
        stash.add_back()
        return total / weights if weights else math.nan

    def samples(
        self,
        feed: DataFeed,
        phase: TrainingPhaseSpec,
        entry: dict[str, Any],
        random: RandomStates,
    ) -> list[SampleLoss]:
        """Every sample of a micro-batch in a batch of its own, forward alone."""
        losses = []
        for number, key in enumerate(_keys(entry)):
            name = entry["ids"][number] if number < len(entry["ids"]) else f"index {key.index}"
            random.restore(self.graph.device)
            try:
                loss, _ = self._forward(phase, feed.batch_of([key]))
                losses.append(SampleLoss(name, phase.name, float(loss.detach())))
            except Exception as error:  # a loss over pairs, batch statistics, ...
                problem = f"{type(error).__name__}: {error}"
                losses.append(SampleLoss(name, phase.name, None, problem))
        return losses

    def _forward(self, phase: TrainingPhaseSpec, batch: MicroBatch) -> tuple[Tensor, float]:
        context = TrainingContext(phase, batch.inputs, self.step, self.epoch, True, batch.info)
        graph = self.graph
        output = self.strategy.execute_training_phase(graph.model, graph.adapter, context)
        assert output.loss is not None  # the adapter has checked it
        return output.loss, 1.0 if output.num_items is None else float(output.num_items)


def _read(directory: Path) -> dict[str, Any]:
    path = directory / DUMP_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{directory} holds no {DUMP_FILE}: give a directory nonfinite/step-<n> of a run."
        )
    document: dict[str, Any] = parse_json(path.read_bytes())
    if document.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {document.get('format')!r}, this version reads {FORMAT}."
        )
    return document


def _keys(entry: dict[str, Any]) -> list[SampleKey]:
    if entry["keys"] is None:
        raise CheckpointError(
            "This run read a stream, whose samples cannot be asked for again; the dump holds its "
            f"weights and these ids: {', '.join(entry['ids']) or 'none'}."
        )
    return [SampleKey(*key) for key in entry["keys"]]


def _batch(feed: DataFeed, entry: dict[str, Any]) -> MicroBatch:
    batch = feed.batch_of(_keys(entry))
    ids = [str(name) for name in batch.info.get("ids", ())]
    if ids != entry["ids"]:
        raise DataError(
            f"The data has changed since the dump: its samples were {entry['ids']}, the same keys "
            f"now give {ids}."
        )
    return batch


def _not_finite(tensors: Any) -> list[str]:
    return [
        name
        for name, tensor in tensors
        if tensor is not None
        and tensor.is_floating_point()
        and not bool(torch.isfinite(tensor).all())
    ]


@contextmanager
def _first_nonfinite(module: nn.Module) -> Iterator[list[str]]:
    """Collect names of modules whose output is not finite, in the order in which they ran."""
    found: list[str] = []

    def watch(name: str) -> Any:
        def look(_: nn.Module, __: Any, output: Any) -> None:
            tensors = output.values() if isinstance(output, dict) else output
            tensors = [tensors] if isinstance(tensors, Tensor) else tensors
            if isinstance(tensors, (list, tuple)) or isinstance(output, dict):
                named = ((name, item) for item in tensors if isinstance(item, Tensor))
                found.extend(_not_finite(named)[:1])

        return look

    handles = [m.register_forward_hook(watch(n or "(root)")) for n, m in module.named_modules()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _describe_gradients(module: nn.Module, result: Replay) -> None:
    named = [(name, p.grad) for name, p in module.named_parameters() if p.grad is not None]
    result.grad_norm = float(total_norm([grad for _, grad in named]))
    result.nonfinite_gradients = _not_finite(named)
    by_module: dict[str, list[Tensor]] = {}
    for name, grad in named:
        by_module.setdefault(name.rpartition(".")[0] or "(root)", []).append(grad)
    result.gradient_norms = {name: float(total_norm(grads)) for name, grads in by_module.items()}

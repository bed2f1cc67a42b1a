"""Evaluation: weighted by items, in eval mode, and without a trace in the training randomness."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.adapters.evaluation import EvaluationContext, EvaluationTask, MetricAccumulator
from voicehub.adapters.outputs import SpeechTrainingOutput
from voicehub.checkpoints.random_state import capture_random_state, restore_random_state
from voicehub.errors import ConfigurationError, DataError
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.fillers import Fillers
from voicehub.trainer.micro_batch import MicroBatch


class EvalPrediction(NamedTuple):
    """What ``compute_metrics`` gets: NumPy arrays over the whole split."""

    predictions: Any
    label_ids: Any


class PredictionOutput(NamedTuple):
    """Result of ``Trainer.predict``."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]


ComputeMetrics = Callable[[EvalPrediction], Mapping[str, float]]
PreprocessLogits = Callable[[Any, Any], Any]


@dataclass
class SplitResult:
    """One evaluated split, metrics without a prefix."""

    metrics: dict[str, float]
    predictions: Any = None
    label_ids: Any = None


@dataclass
class _Totals:
    accumulator: MetricAccumulator
    loss: float = 0.0
    weight: float = 0.0
    samples: int = 0
    components: dict[str, float] = field(default_factory=dict)
    predictions: list[np.ndarray[Any, Any]] = field(default_factory=list)
    labels: list[np.ndarray[Any, Any]] = field(default_factory=list)


@contextlib.contextmanager
def evaluation_mode(adapter: TrainingAdapter) -> Iterator[None]:
    """Eval mode without gradients; training mode and random states are as before afterwards."""
    state = capture_random_state()
    was_training = adapter.module.training
    adapter.eval_mode()
    try:
        with torch.no_grad():
            yield
    finally:
        if was_training:
            adapter.train_mode()
        restore_random_state(state)


class Evaluator:
    """Runs the evaluation phase of an adapter over a data feed."""

    def __init__(
        self,
        *,
        model: nn.Module,
        adapter: TrainingAdapter,
        strategy: TrainingStrategy,
        label_names: list[str],
        compute_metrics: ComputeMetrics | None,
        preprocess_logits: PreprocessLogits | None,
        on_batch: Callable[[], None],
    ) -> None:
        self.model = model
        self.adapter = adapter
        self.strategy = strategy
        self.label_names = label_names
        self.compute_metrics = compute_metrics
        self.preprocess_logits = preprocess_logits
        self.on_batch = on_batch

    def run(
        self, feed: DataFeed, split: str, *, loss_only: bool, keep_predictions: bool
    ) -> SplitResult:
        """Evaluate one split.

        ``loss`` is the mean over items where outputs carry ``num_items`` and over samples where
        not; ``samples`` counts what was read.

        Raises:
            DataError: the split gave no batch.
        """
        totals = _Totals(self.adapter.metric_accumulator(split))
        began = time.perf_counter()
        with evaluation_mode(self.adapter):
            fillers = Fillers(feed.first_batch)
            for batch in self._batches(feed):
                rows: list[Any] = []
                if batch is None and self.strategy.needs_equal_work:
                    nothing = _Totals(totals.accumulator)
                    self._run_batch(fillers.one(), nothing, loss_only=True, keep=False)
                elif batch is not None:
                    rows = self._run_batch(
                        batch, totals, loss_only=loss_only, keep=keep_predictions
                    )
                if not loss_only:
                    totals.accumulator.add(self.strategy.gather_for_metrics(rows))
                self.on_batch()
        if self.strategy.world_size > 1:
            self._share(totals)
        if totals.samples == 0:
            raise DataError("The evaluation data gave no batch: nothing was evaluated.")
        elapsed = max(time.perf_counter() - began, 1e-9)
        metrics = self._metrics(totals, loss_only=loss_only)
        metrics["samples"] = totals.samples
        metrics["runtime"] = elapsed
        metrics["samples_per_second"] = totals.samples / elapsed
        # Decisions hang on them: all processes take those of the first one, to the last bit.
        metrics = self.strategy.exchange(metrics, what="the metrics")[0]
        return SplitResult(metrics, _joined(totals.predictions), _joined(totals.labels))

    def _batches(self, feed: DataFeed) -> Iterator[MicroBatch | None]:
        """This process's batches; None in rounds in which only others have one."""
        batches = feed.batches(0)
        if self.strategy.world_size == 1:
            yield from batches
            return
        while True:
            batch = next(batches, None)
            if not self.strategy.any_rank(batch is not None):
                return
            yield batch

    def _share(self, totals: _Totals) -> None:
        """Make the totals those of all processes; each batch counts once."""
        own = [totals.loss, totals.weight, totals.samples, totals.components]
        rows = self.strategy.exchange(own, what="the evaluation's sums")
        totals.loss, totals.weight = sum(row[0] for row in rows), sum(row[1] for row in rows)
        totals.samples = sum(row[2] for row in rows)
        totals.components = {}
        for row in rows:
            for name, value in row[3].items():
                totals.components[name] = totals.components.get(name, 0.0) + value
        kept = self.strategy.gather_objects([totals.predictions, totals.labels])
        totals.predictions = _in_turn([row[0] for row in kept])
        totals.labels = _in_turn([row[1] for row in kept])

    def _run_batch(
        self, batch: MicroBatch, totals: _Totals, *, loss_only: bool, keep: bool
    ) -> list[Any]:
        """Evaluate one batch; returns its rows."""
        if batch.phase is None:
            phase = self.adapter.select_evaluation_phase()
        else:
            phase = self.adapter.select_phase(batch.phase)
        context = TrainingContext(phase, batch.inputs, None, None, False, batch.info)
        output = self.strategy.execute_prediction_phase(self.model, self.adapter, context)
        totals.samples += batch.size
        if output.loss is not None:
            self._add_loss(output, batch, totals)
        if loss_only:
            return []
        if keep or self.compute_metrics is not None:
            self._keep(output, batch, totals)
        return self.adapter.evaluation_rows(output, batch.inputs, batch.info)

    def _add_loss(self, output: SpeechTrainingOutput, batch: MicroBatch, totals: _Totals) -> None:
        weight = float(batch.size if output.num_items is None else output.num_items)
        if weight == 0:
            return
        assert output.loss is not None
        totals.loss += float(output.loss) * weight
        totals.weight += weight
        if len(output.losses) > 1:
            for name, value in output.losses.items():
                part = float(value) * weight
                totals.components[name] = totals.components.get(name, 0.0) + part

    def _keep(self, output: SpeechTrainingOutput, batch: MicroBatch, totals: _Totals) -> None:
        logits = output.logits if output.logits is not None else output.predictions
        labels = None
        if isinstance(batch.inputs, Mapping):
            labels = next((batch.inputs[n] for n in self.label_names if n in batch.inputs), None)
        if logits is not None:
            if self.preprocess_logits is not None:
                logits = self.preprocess_logits(logits, labels)
            totals.predictions.append(_numpy(logits))
        if labels is not None:
            totals.labels.append(_numpy(labels))

    def _metrics(self, totals: _Totals, *, loss_only: bool) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if totals.weight:
            metrics["loss"] = totals.loss / totals.weight
            for name, value in totals.components.items():
                metrics[f"loss/{name}"] = value / totals.weight
        if loss_only:
            return metrics
        metrics.update({k: float(v) for k, v in totals.accumulator.compute().items()})
        if self.compute_metrics is not None:
            prediction = EvalPrediction(_joined(totals.predictions), _joined(totals.labels))
            metrics.update({k: float(v) for k, v in self.compute_metrics(prediction).items()})
        return metrics


def run_tasks(
    tasks: Sequence[EvaluationTask], context: EvaluationContext, known: Mapping[str, float]
) -> dict[str, float]:
    """Run what is measured beside the splits, and return its metrics with their prefix.

    Args:
        known: Metrics of the splits; a task must not measure under one of their names.

    Raises:
        ConfigurationError: two metrics have one name.
    """
    found: dict[str, float] = {}
    module, strategy = context.adapter.module, context.strategy
    with evaluation_mode(context.adapter), strategy.open_model(module):
        for task in tasks:
            for name, value in prefixed(task.run(context), context.prefix).items():
                if name in known or name in found:
                    raise ConfigurationError(
                        f"The evaluation task '{task.name or type(task).__name__}' measures "
                        f"'{name}', which this evaluation has already. Rename one of them."
                    )
                found[name] = float(value)
    return found


def _in_turn(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """One entry of each list after the other, as batches were dealt; later ones may be shorter."""
    longest = max(map(len, lists))
    return [one[n] for n in range(longest) for one in lists if n < len(one)]


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, Tensor):
        value = value.detach()
        value = (value.float() if value.dtype is torch.bfloat16 else value).cpu().numpy()
    return np.asarray(value)


def _joined(arrays: list[np.ndarray[Any, Any]]) -> Any:
    """One array over all batches; shorter ones are padded with -100, as transformers does."""
    if not arrays:
        return None
    ranks = {array.ndim for array in arrays}
    if len(ranks) != 1 or ranks == {0}:
        return arrays
    trailing = [max(sizes) for sizes in zip(*(a.shape[1:] for a in arrays), strict=True)]
    padded = []
    for array in arrays:
        missing = [(0, size - have) for size, have in zip(trailing, array.shape[1:], strict=True)]
        padded.append(np.pad(array, [(0, 0), *missing], constant_values=-100))
    return np.concatenate(padded)


def prefixed(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Metrics as ``<prefix>_<name>``; non-finite values stay, and are reported as such."""
    return {f"{prefix}_{name}": value for name, value in metrics.items()}


def means_over_splits(
    metrics: Mapping[str, float], prefix: str, splits: list[str]
) -> dict[str, float]:
    """Unweighted means, so that a small split counts as much as a large one."""
    heads = [f"{prefix}_{split}_" for split in splits]
    names = {k.removeprefix(heads[0]) for k in metrics if k.startswith(heads[0])}
    means = {}
    for name in sorted(names):
        values = [metrics[head + name] for head in heads if head + name in metrics]
        if len(values) == len(splits) and name != "samples":
            means[f"{prefix}_{name}"] = sum(values) / len(values)
    return means

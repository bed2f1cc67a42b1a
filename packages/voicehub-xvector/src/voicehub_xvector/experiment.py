"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub_data.augment import audio_augmentation, feature_augmentation
from voicehub_data.batching import evaluation_plan
from voicehub_data.samplers import RandomChunkPlan
from voicehub_data.splits import read_splits
from voicehub_xvector.adapter import DetCurves
from voicehub_xvector.class_map import class_names, classes_digest
from voicehub_xvector.config import EncoderRunConfig, LogMelRunConfig, XVectorRunConfig
from voicehub_xvector.data import SpeakerSplit, XVectorCollator, XVectorDataset, speaker_split
from voicehub_xvector.data.hard_prototypes import HardPrototypesPlan, NeighbourUpdate
from voicehub_xvector.data.plans import training_plan
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.front_ends import FrontEnd, build_features
from voicehub_xvector.head_config import EcapaConfig
from voicehub_xvector.health import EmbeddingMonitor, doubts
from voicehub_xvector.model import EncoderXVector, LogMelXVector


def build_experiment(config: XVectorRunConfig) -> Experiment:
    """Read and check the data, number the speakers, describe the model; no weights load.

    Raises:
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
        ConfigurationError: settings contradict each other, or a checkpoint does not fit.
    """
    rate = _front_end(config).sample_rate
    read = read_splits(config.data, sample_rate=rate)
    splits = [speaker_split(split, config.data) for split in read]
    train, *evals = splits
    classes = class_names(train.speakers, config.data.speed_speakers)
    model = _model(config, classes)
    if not evals:
        train.report.notes.extend(config.evaluate_nothing())
    dataset = _dataset(config, train, model, training=True, share=_share(splits, train))
    plan = training_plan(
        config.data.sampler,
        dataset.planning_durations,
        dataset.labels,
        dataset.ids,
        seed=config.training.effective_data_seed,
    )
    if isinstance(plan, RandomChunkPlan):
        dataset.cut_by(plan)
    callbacks: list[Any] = [EmbeddingMonitor()]
    if isinstance(plan, HardPrototypesPlan):
        callbacks.append(NeighbourUpdate(plan))
    eval_sets = {
        split.name: _dataset(config, split, model, training=False, share=_share(splits, split))
        for split in evals
    }
    train.report.notes.extend(
        [
            f"{len(classes)} classes, {len(dataset)} recordings at all speeds",
            *(f"{doubt.name}: {doubt.text}" for doubt in doubts(config, train, len(classes))),
            *_layer_note(model),
        ]
    )
    return Experiment(
        model=model,
        train_dataset=dataset,
        eval_datasets=dict(eval_sets),
        data_collator=_collator(config, model),
        train_plan=plan,
        eval_plans={
            name: evaluation_plan(
                dataset.planning_durations,
                config.data.eval_padded_seconds,
                dataset.ids,
                max_batch_size=None,
            )
            for name, dataset in eval_sets.items()
        },
        callbacks=callbacks,
        evaluation_tasks=[DetCurves()] if evals else [],
        data_report=[split.report for split in splits],
        record=_record(splits, model, classes),
        next_command=_next_command(config),
    )


# -- the model -------------------------------------------------------------------------------


def _model(config: XVectorRunConfig, classes: Sequence[str]) -> XVectorModel:
    if isinstance(config, LogMelRunConfig):
        return LogMelXVector.from_config(config.model, classes)
    assert isinstance(config, EncoderRunConfig)
    start = None if config.init_from is None else Path(config.init_from)
    return EncoderXVector.from_config(
        config.model, classes, model_type=config.model_type, init_from=start
    )


def _front_end(config: XVectorRunConfig) -> FrontEnd:
    if isinstance(config, LogMelRunConfig):
        return build_features(config.model.features)
    return _model(config, ()).front_end


def _layer_note(model: XVectorModel) -> list[str]:
    """What the layers that no fused hidden state needs would have cost."""
    if not isinstance(model, EncoderXVector) or model.config.fuser.stop is None:
        return []
    layers = int(model.parts.config.num_hidden_layers)
    stop = model.config.fuser.stop
    if stop >= layers:
        return []
    return [
        f"encoder: hidden states {model.config.fuser.start} to {stop} are fused; the "
        f"{layers - stop}"
        f" layers above, {(layers - stop) / layers:.0%} of their stack, are dropped"
    ]


# -- the data --------------------------------------------------------------------------------


def _share(splits: Sequence[SpeakerSplit], split: SpeakerSplit) -> float:
    """Memory for kept audio is shared out by duration."""
    return split.report.seconds / (sum(s.report.seconds for s in splits) or 1.0)


def _dataset(
    config: XVectorRunConfig,
    split: SpeakerSplit,
    model: XVectorModel,
    *,
    training: bool,
    share: float,
) -> XVectorDataset:
    augment = config.data.augment
    return XVectorDataset(
        split.rows,
        model.classes,
        model.front_end,
        speeds=config.data.speed_speakers if training else (),
        augment=audio_augmentation(augment) if training else None,
        spec_augment=feature_augmentation(augment) if training else None,
        fills_pieces=isinstance(config.model.head, EcapaConfig),
        cache_bytes=int((config.data.cache_megabytes << 20) * share),
    )


def _collator(config: XVectorRunConfig, model: XVectorModel) -> XVectorCollator:
    masks = feature_augmentation(config.data.augment)
    size = model.fused_size if isinstance(model, EncoderXVector) else 0
    return XVectorCollator(model.front_end, masks, size)


# -- the record and the end --------------------------------------------------------------------


def _record(
    splits: Sequence[SpeakerSplit], model: XVectorModel, classes: Sequence[str]
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "manifests": {split.name: split.digest for split in splits},
        "classes": {"count": len(classes), "sha256": classes_digest(classes)},
        "front_end": model.front_end.fingerprint(),
    }
    if isinstance(model, EncoderXVector):
        record["checkpoint"] = model.identity()
    return record


def _next_command(config: XVectorRunConfig) -> Any:
    source = next(iter(config.data.eval.values()), config.data.train[0])

    def command(directory: Path) -> str:
        return shlex.join(["voicehub", "eval", str(directory), "--data", source.path])

    return command

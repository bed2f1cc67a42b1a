"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub.errors import ConfigurationError
from voicehub.models.results import PredictionRow
from voicehub_asr_ctc.config import (
    CheckpointTokenizerConfig,
    CTCRunConfig,
    GivenTokenizerConfig,
    LogMelModelConfig,
    LogMelRunConfig,
    PretrainedRunConfig,
)
from voicehub_asr_ctc.data import (
    CTCCollator,
    CTCDataset,
    LabelledSplit,
    label_split,
)
from voicehub_asr_ctc.data.transcripts import TranscriptNormalizer
from voicehub_asr_ctc.front_ends import FrontEnd
from voicehub_asr_ctc.health import CollapseMonitor
from voicehub_asr_ctc.model import LogMelCTC, TransformersCTC
from voicehub_asr_ctc.recogniser import CTCRecogniser
from voicehub_asr_ctc.suspicions import suspicions
from voicehub_asr_ctc.tokenizers import CTCTokenizer, VocabularyReport, build_tokenizer
from voicehub_asr_ctc.wav_bytes import wav_bytes
from voicehub_data.augment import SpecAugment, audio_augmentation, feature_augmentation
from voicehub_data.batching import evaluation_plan, training_plan
from voicehub_data.splits import SplitRows, read_splits


@dataclass(frozen=True)
class _Start:
    """A model that is described, not loaded, with its tokenizer."""

    model: CTCRecogniser
    vocabulary: VocabularyReport | None
    record: dict[str, Any]


def build_experiment(config: CTCRunConfig) -> Experiment:
    """Read and check the data, build the tokenizer, describe the model; no weights load.

    Raises:
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
        ConfigurationError: settings contradict each other, or a checkpoint does not fit.
    """
    rate = _sample_rate(config)
    data = config.data
    train, *evals = read_splits(data, sample_rate=rate)
    start = _start(config, train)
    tokenizer, front_end = start.model.tokenizer, start.model.front_end
    fastest = max(data.augment.speed.factors) if data.augment.speed else 1.0
    labelled = [
        label_split(split, tokenizer, front_end, data, fastest=fastest if split is train else 1.0)
        for split in (train, *evals)
    ]
    if start.vocabulary is not None:
        labelled[0].report.notes.append(
            f"vocabulary: {len(tokenizer)} tokens ({tokenizer.kind}); {start.vocabulary.describe()}"
        )
    doubts = suspicions(config, labelled[0], tokenizer, front_end)
    known = {note.split(":", 1)[0] for note in labelled[0].report.notes}
    labelled[0].report.notes.extend(f"{d.name}: {d.text}" for d in doubts if d.name not in known)
    if not evals:
        labelled[0].report.notes.extend(config.evaluate_nothing())
    datasets = _datasets(config, labelled, front_end)
    experiment = Experiment(
        model=start.model,
        train_dataset=datasets[0],
        eval_datasets={s.name: d for s, d in zip(labelled[1:], datasets[1:], strict=True)},
        data_collator=CTCCollator(
            front_end, feature_augmentation(data.augment), _second_view(config)
        ),
        train_plan=training_plan(
            data.batches, config.training, datasets[0].planning_durations, datasets[0].ids
        ),
        eval_plans={
            split.name: evaluation_plan(
                dataset.planning_durations, data.eval_padded_seconds, dataset.ids
            )
            for split, dataset in zip(labelled[1:], datasets[1:], strict=True)
        },
        callbacks=[CollapseMonitor(doubts, fine_tuning=isinstance(config, PretrainedRunConfig))],
        data_report=[split.report for split in labelled],
        record=_record(config, labelled, start),
        predict=_predictor(start.model, labelled),
        next_command=_next_command(config, labelled),
    )
    experiment.audio_bytes = wav_bytes  # type: ignore[attr-defined]
    return experiment


# -- the model -------------------------------------------------------------------------------


def _sample_rate(config: CTCRunConfig) -> int:
    if isinstance(config, LogMelRunConfig):
        return _log_mel_config(config).sample_rate
    return _described(config, None).front_end.sample_rate


def _start(config: CTCRunConfig, train: SplitRows) -> _Start:
    transcripts = TranscriptNormalizer(config.data.text_normalizer, config.data.text_case)
    texts = [transcripts(row.text) for row in train.rows]
    earlier = _earlier(config)
    if isinstance(config, LogMelRunConfig):
        model_config = _log_mel_config(config)
        wanted = model_config.tokenizer if earlier is None else earlier
        tokenizer, vocabulary = build_tokenizer(wanted, texts)
        model = LogMelCTC.from_config(
            model_config, tokenizer, metric_normalizer=config.data.metric_normalizer
        )
        return _Start(model, vocabulary, {})
    assert isinstance(config, PretrainedRunConfig)
    given: CTCTokenizer | None = None
    report = None
    if earlier is None and not isinstance(config.model.tokenizer, CheckpointTokenizerConfig):
        given, report = build_tokenizer(config.model.tokenizer, texts, with_unknown=True)
    described = _described(config, given)
    return _Start(described, report, {"checkpoint": described.identity()})


def _earlier(config: CTCRunConfig) -> GivenTokenizerConfig | None:
    """The tokenizer of the artifact that the run starts from."""
    return None if config.init_from is None else GivenTokenizerConfig(path=config.init_from)


def _log_mel_config(config: LogMelRunConfig) -> LogMelModelConfig:
    """The model section; sizes and tokenizer are those of ``init_from`` where that is given."""
    model = config.model
    if config.init_from is None:
        return model
    earlier = LogMelCTC(config.init_from).config
    free = ("dropout", "intermediate_weight", "label_smoothing", "consistency_weight")
    changed = sorted(
        name
        for name in model.model_fields_set.difference(free)
        if getattr(model, name) != getattr(earlier, name)
    )
    if changed:
        raise ConfigurationError(
            f"init_from {config.init_from} fixes sizes and tokenizer of the model, but the run "
            f"sets others: {', '.join(f'model.{name}' for name in changed)}. Leave them out."
        )
    return earlier.model_copy(update={name: getattr(model, name) for name in free})


def _described(config: CTCRunConfig, tokenizer: CTCTokenizer | None) -> TransformersCTC:
    assert isinstance(config, PretrainedRunConfig)
    return TransformersCTC.from_config(
        config.model,
        tokenizer,
        model_type=config.model_type,
        metric_normalizer=config.data.metric_normalizer,
        uses_masks=config.data.augment.spec_augment is not None,
        seed=config.training.seed,
        init_from=None if config.init_from is None else Path(config.init_from),
    )


# -- the data --------------------------------------------------------------------------------


def _datasets(
    config: CTCRunConfig, splits: Sequence[LabelledSplit], front_end: FrontEnd
) -> list[CTCDataset]:
    """One data set a split, which share the memory for kept inputs by their durations."""
    augment, masks = config.data.augment, feature_augmentation(config.data.augment)
    total = sum(split.report.seconds for split in splits) or 1.0
    memory = config.data.cache_megabytes << 20
    return [
        CTCDataset(
            split.rows,
            split.labels,
            front_end,
            augment=audio_augmentation(augment) if position == 0 else None,
            spec_augment=masks if position == 0 else None,
            second_view=_second_view(config) if position == 0 else None,
            cache_bytes=int(memory * split.report.seconds / total),
        )
        for position, split in enumerate(splits)
    ]


def _second_view(config: CTCRunConfig) -> SpecAugment | None:
    """Masks of a second view where consistency is trained: as the first's, of another draw."""
    assert isinstance(config, LogMelRunConfig | PretrainedRunConfig)
    masks = config.data.augment.spec_augment
    if not config.model.consistency_weight or masks is None:
        return None
    return SpecAugment(**masks.model_dump(), name="spec_augment_second")


# -- the record and the end --------------------------------------------------------------------


def _record(config: CTCRunConfig, splits: Sequence[LabelledSplit], start: _Start) -> dict[str, Any]:
    model = start.model
    return {
        "manifests": {split.name: split.digest for split in splits},
        "tokenizer": {
            "kind": model.tokenizer.kind,
            "tokens": len(model.tokenizer),
            "sha256": model.tokenizer.fingerprint(),
        },
        "text_normalizer": config.data.text_normalizer,
        "metric_normalizer": config.data.metric_normalizer,
        "front_end": model.front_end.fingerprint(),
        **start.record,
    }


def _predictor(model: CTCRecogniser, splits: Sequence[LabelledSplit]) -> Any:
    rows = splits[1].rows if len(splits) > 1 else splits[0].rows

    def predict(count: int) -> list[PredictionRow]:
        taken = min(count, len(rows))
        chosen = [rows[i * len(rows) // taken] for i in range(taken)]
        return model.predict_rows(chosen)

    return predict


def _next_command(config: CTCRunConfig, splits: Sequence[LabelledSplit]) -> Any:
    rows = splits[1].rows if len(splits) > 1 else splits[0].rows
    audio = next((row.audio_filepath for row in rows if not row.is_segment), "FILE")

    def command(directory: Path) -> str:
        return shlex.join(["voicehub", "transcribe", str(audio), "--model", str(directory)])

    return command

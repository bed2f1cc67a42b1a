"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub.errors import ConfigurationError
from voicehub_asr_llm.config import AsrLlmRunConfig
from voicehub_asr_llm.data import (
    AsrLlmCollator,
    AsrLlmDataset,
    LabelledRows,
    Labeller,
    Silence,
    label_rows,
)
from voicehub_asr_llm.data.kept import keep_rows
from voicehub_asr_llm.data.mixing import refuse_expanded_epochs, training_plan
from voicehub_asr_llm.data.packing import Packing
from voicehub_asr_llm.data.sources import (
    EvalData,
    TrainingData,
    read_eval_data,
    read_training_data,
    refuse_overlap,
)
from voicehub_asr_llm.decoders import DecoderSource
from voicehub_asr_llm.decoders.chat import Kind
from voicehub_asr_llm.decoders.loading import installed_attention
from voicehub_asr_llm.evaluating import report_rows
from voicehub_asr_llm.model import AsrLlm
from voicehub_data.augment import audio_augmentation, feature_augmentation, silence_injection
from voicehub_data.batching import evaluation_plan


def build_experiment(config: AsrLlmRunConfig) -> Experiment:
    """Read and check the data, encode its transcripts, describe the model; no weights load.

    Raises:
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
        ConfigurationError: settings contradict each other, or a checkpoint does not fit.
    """
    data = config.data
    refuse_expanded_epochs(data, config.training.num_train_epochs)
    model = AsrLlm.from_config(
        config.model, metric_normalizer=data.metric_normalizer, seed=config.training.seed
    )
    rate = model.front_end.sample_rate
    training = read_training_data(data, sample_rate=rate)
    splits = read_eval_data(data, sample_rate=rate)
    if data.overlapping_ids == "refuse":
        refuse_overlap(training, splits)
    model.learns_from(training.ids, punctuated=training.punctuated)
    training, labelled = _label_training(config, model, training)
    evals = [(split, _label_eval(config, model, split)) for split in splits]
    reports = training.reports
    reports += [rows.added_to(split.report) for split, rows in evals]
    if not evals:
        reports[0].notes.extend(config.evaluate_nothing())
    packing, said = chosen_packing(config, model.decoder_source)
    reports[0].notes.append(said)
    _require_maskable(config, model)
    total = sum(report.seconds for report in reports) or 1.0
    dataset = _dataset(config, model, labelled, total, training=True)
    eval_sets = {
        split.name: _dataset(config, model, rows, total, training=False) for split, rows in evals
    }
    stride, dropout = config.model.projector.stride, config.model.projector.frame_dropout
    return Experiment(
        model=model,
        train_dataset=dataset,
        eval_datasets=dict(eval_sets),
        data_collator=AsrLlmCollator(
            model.front_end, model.chat, stride, packing=packing,
            pack_tokens=data.pack_tokens, frame_dropout=dropout,
        ),
        train_plan=training_plan(
            training,
            data.batches.or_size(config.training.per_device_train_batch_size),
            dataset.planning_durations,
            seed=config.training.effective_data_seed,
        ),
        eval_plans={
            name: evaluation_plan(found.planning_durations, data.eval_padded_seconds, found.ids)
            for name, found in eval_sets.items()
        },
        data_report=reports,
        record=_record(model, training, splits),
        predict=_predictor(model, training, splits),
        next_command=_next_command(training, splits),
    )  # fmt: skip


# -- packing -----------------------------------------------------------------------------------


def chosen_packing(config: AsrLlmRunConfig, decoder: DecoderSource) -> tuple[Packing, str]:
    """How utterances share rows, and what to say of it.

    Raises:
        ConfigurationError: packing is asked for, and the decoder's layers cannot be kept apart.
    """
    wanted, kinds = config.data.packing, decoder.recurrent_kinds
    if kinds:
        name = f"{decoder.text_config.model_type} has {', '.join(kinds)} layers"
        if wanted in ("rows", "batch"):
            raise ConfigurationError(
                f"data.packing={wanted}: the decoder {decoder.path} cannot be packed: {name}, "
                "whose state would run on from one utterance into the next. Set "
                "data.packing=none (or auto), and batch similar lengths "
                "(data.batches.max_padded_seconds)."
            )
        return "none", f"packing: none, since {name}, whose state runs on along a row"
    flash = installed_attention(config.model.decoder.attention) == "flash_attention_2"
    if wanted == "auto":
        wanted = "batch" if flash else "rows"
    how = {
        "rows": f"rows of at most {config.data.pack_tokens:,} tokens, apart by block masks",
        "batch": "a batch is one row",
        "none": "none, rows are padded",
    }
    return wanted, f"packing: {how[wanted]}"


# -- data sets -----------------------------------------------------------------------------------


def _label_training(
    config: AsrLlmRunConfig, model: AsrLlm, training: TrainingData
) -> tuple[TrainingData, LabelledRows]:
    augment = audio_augmentation(config.data.augment)
    labeller = _labeller(config, model, 1.0 if augment is None else augment.max_stretch)
    prompts: list[Kind] = ["punctuated" if p else "plain" for p in training.row_punctuated]
    labelled = label_rows(
        "train",
        training.rows,
        [row.text for row in training.rows],
        prompts,
        labeller,
        training=True,
        max_drop_fraction=config.data.max_drop_fraction,
    )
    return keep_rows(training, labelled), labelled


def _label_eval(config: AsrLlmRunConfig, model: AsrLlm, split: EvalData) -> LabelledRows:
    return label_rows(
        split.name,
        split.rows,
        split.labels,
        [model.prompt_kind] * len(split.rows),
        _labeller(config, model),
        training=False,
        max_drop_fraction=config.data.max_drop_fraction,
    )


def _labeller(config: AsrLlmRunConfig, model: AsrLlm, stretch: float = 1.0) -> Labeller:
    return Labeller(
        model.chat, model.front_end, config.model.projector.stride, config.data.max_tokens, stretch
    )


def _dataset(
    config: AsrLlmRunConfig, model: AsrLlm, rows: LabelledRows, total: float, *, training: bool
) -> AsrLlmDataset:
    """Memory for kept inputs is shared out by duration."""
    augment, injection = config.data.augment, silence_injection(config.data.silence)
    silence = None if injection is None else Silence(injection, model.chat.encode("").ids)
    seconds = sum(row.duration or 0.0 for row in rows.rows)
    return AsrLlmDataset(
        rows.rows,
        rows.labels,
        rows.prompts,
        model.front_end,
        minimum_frames=config.model.projector.stride,
        augment=audio_augmentation(augment) if training else None,
        spec_augment=feature_augmentation(augment) if training else None,
        silence=silence if training else None,
        cache_bytes=int((config.data.cache_megabytes << 20) * seconds / total),
    )


def _require_maskable(config: AsrLlmRunConfig, model: AsrLlm) -> None:
    if config.data.augment.spec_augment is None or model.front_end.features:
        return
    raise ConfigurationError(
        "data.augment.spec_augment masks features, and this encoder reads samples or a fixed "
        "window: leave it out, or set model.projector.frame_dropout."
    )


# -- the record and the end --------------------------------------------------------------------


def _record(model: AsrLlm, training: TrainingData, splits: Sequence[EvalData]) -> dict[str, Any]:
    return {
        "manifests": {
            "train": training.digest,
            **{split.name: split.digest for split in splits},
        },
        **model.identities,
        "chat": {"sha256": model.chat.fingerprint(), "end": model.chat.end_id},
        "prompt": model.prompt_kind,
        "front_end": model.front_end.fingerprint(),
    }


def _predictor(model: AsrLlm, training: TrainingData, splits: Sequence[EvalData]) -> Any:
    rows = splits[0].rows if splits else training.rows

    def predict(count: int) -> Any:
        return report_rows(
            model.recognise(),
            rows,
            count,
            sample_rate=model.sampling_rate,
            normalizer=model.metric_normalizer,
        )

    return predict


def _next_command(training: TrainingData, splits: Sequence[EvalData]) -> Any:
    rows = splits[0].rows if splits else training.rows
    audio = next((row.audio_filepath for row in rows if not row.is_segment), "FILE")

    def command(directory: Path) -> str:
        return shlex.join(["voicehub", "transcribe", str(audio), "--model", str(directory)])

    return command

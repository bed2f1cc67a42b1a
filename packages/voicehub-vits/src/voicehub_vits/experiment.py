"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub.data.plan import BatchPlan, FixedSizePlan
from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub_data.batching import training_plan
from voicehub_data.splits import SplitRows, read_splits
from voicehub_data.text.spoken import spoken_texts
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.checks import assumed_acoustic, check_training_settings, require_trainable_files
from voicehub_vits.config import (
    CharactersTextConfig,
    PhonemesTextConfig,
    VitsModelConfig,
    VitsRunConfig,
)
from voicehub_vits.continuing import artifact_voices
from voicehub_vits.data import (
    AudioPreparation,
    PreparedSplit,
    VitsCollator,
    VitsDataset,
    prepare_split,
)
from voicehub_vits.data.voices import Voices, voices_of_rows
from voicehub_vits.evaluation import SampleTask
from voicehub_vits.health import AdversarialMonitor
from voicehub_vits.listeners import check_evaluation
from voicehub_vits.model import VitsTTS
from voicehub_vits.terms import TERMS
from voicehub_vits.text import TextFrontEnd, build_tokenizer


@dataclass(frozen=True)
class _Start:
    """A model that is described, not loaded."""

    model: VitsTTS
    acoustic: AcousticConfig
    notes: list[str]


def build_experiment(config: VitsRunConfig) -> Experiment:
    """Check settings against the checkpoint, read and check the data; no weights load.

    Raises:
        ConfigurationError: settings contradict each other, or the checkpoint.
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
    """
    data = config.data
    described = _describe_checkpoint(config.model)
    acoustic = config.model.training_acoustic_config or assumed_acoustic(described)
    rate = acoustic.sampling_rate
    train, *evals = read_splits(data, sample_rate=rate)
    start = _start(config, acoustic, train, described)
    preparation = AudioPreparation(
        acoustic,
        trim=data.trim_silence,
        trim_threshold_db=data.trim_threshold_db,
        trim_margin=data.trim_margin,
        loudness=data.loudness,
        cache=data.cache_directory,
    )
    model = start.model
    check_evaluation(config.eval, model.front_end)
    splits = [
        prepare_split(split, model.front_end, preparation, model.voices, data)
        for split in (train, *evals)
    ]
    splits[0].report.notes.extend(start.notes)
    if not evals:
        splits[0].report.notes.extend(config.evaluate_nothing())
    datasets = _datasets(config, splits, preparation)
    plan = training_plan(
        data.batches, config.training, datasets[0].planning_durations, datasets[0].ids
    )
    _set_schedule(config, plan)
    task = SampleTask(model, config.eval, datasets[-1 if len(datasets) == 1 else 1])
    return Experiment(
        model=model,
        train_dataset=datasets[0],
        eval_datasets={s.name: d for s, d in zip(splits[1:], datasets[1:], strict=True)},
        data_collator=VitsCollator(
            acoustic, int(model.vits_config.flow_size), pad_id=model.front_end.pad_id
        ),
        train_plan=plan,
        eval_plans={
            split.name: FixedSizePlan(len(dataset), data.eval_batch_size, shuffle=False)
            for split, dataset in zip(splits[1:], datasets[1:], strict=True)
        },
        callbacks=[
            AdversarialMonitor(sub_discriminators=1 + len(config.model.discriminator.periods))
        ],
        evaluation_tasks=[task],
        figure_notes=TERMS,
        data_report=[split.report for split in splits],
        record=_record(config, splits, model, preparation),
        next_command=_next_command(splits, model.voices),
    )


# -- the model -------------------------------------------------------------------------------


def _describe_checkpoint(config: VitsModelConfig) -> Any:
    """The ``VitsConfig`` of the checkpoint, checked; None for a model from random weights."""
    if config.path is None:
        return None
    require_trainable_files(config.path)
    wrapper = VitsTTS(config.path, **config.model_dump(exclude={"path"}))
    described = wrapper.vits_config
    check_training_settings(
        described,
        config.training_acoustic_config,
        generator_only=config.generator_only,
        # Which voices there are is known once the data was read.
        conditioned=True,
        source=config.path,
    )
    return described


def _start(
    config: VitsRunConfig, acoustic: AcousticConfig, train: SplitRows, described: Any
) -> _Start:
    front_end, notes = _front_end(config, train)
    architecture = config.model.architecture
    size = (
        architecture.speaker_embedding_size
        if architecture is not None
        else int(described.speaker_embedding_size)
    )
    fresh = architecture is not None or config.model.speaker_table == "new"
    rows = None if fresh else int(described.num_speakers)
    known = artifact_voices(config.model)
    voices = voices_of_rows(
        train.rows,
        table=rows,
        has_speakers=size > 0 and (rows is None or rows > 1),
        has_languages=config.model.language_conditioning,
        given=config.data.speaker_ids,
        known=known,
    )
    _check_voices(config, size)
    notes += _voice_notes(train, voices, size)
    made = None
    if architecture is not None:
        made = new_vits_config(architecture.model_dump(), acoustic, front_end, voices)
        made_conditioned = bool(voices.languages)
        check_training_settings(
            made,
            acoustic,
            generator_only=False,
            conditioned=made_conditioned,
            source="model.architecture",
        )
    model = VitsTTS.from_config(
        config.model, front_end, voices, vits_config=made or described, seed=config.training.seed
    )
    return _Start(model, acoustic, notes)


def _check_voices(config: VitsRunConfig, size: int) -> None:
    if config.model.language_conditioning and not size:
        raise ConfigurationError(
            "model.language_conditioning adds to the speaker's embedding, and this model has none "
            "(speaker_embedding_size 0). Start from a multi-speaker checkpoint, or set "
            "model.architecture.speaker_embedding_size."
        )
    if config.model.speaker_table == "new" and not size:
        raise ConfigurationError(
            "model.speaker_table=new needs a model that is conditioned on speakers; this one has "
            "speaker_embedding_size 0."
        )


def _voice_notes(train: SplitRows, voices: Voices, size: int) -> list[str]:
    names = {row.speaker for row in train.rows if row.speaker is not None}
    if len(names) > 1 and not size:
        return [
            f"speakers: the manifest names {len(names)}, and the model has one voice: all are "
            "trained as one (model.architecture.speaker_embedding_size gives each its own)"
        ]
    if voices.speakers:
        return [f"speakers: {len(voices.speakers)}; languages: {len(voices.languages) or 1}"]
    return []


def _front_end(config: VitsRunConfig, train: SplitRows) -> tuple[TextFrontEnd, list[str]]:
    text = config.model.text
    if isinstance(text, (CharactersTextConfig, PhonemesTextConfig)):
        phonemes = text.language if isinstance(text, PhonemesTextConfig) else None
        front_end, rare = build_tokenizer(
            spoken_texts(train.rows, config.data.text_normalizer),
            min_count=text.min_count,
            lower=isinstance(text, PhonemesTextConfig) or text.lower,
            phonemes=phonemes,
            add_blank=text.add_blank,
        )
        left = f"; without {', '.join(map(repr, sorted(rare)))}" if rare else ""
        return front_end, [f"vocabulary: {len(front_end)} tokens ({text.kind}){left}"]
    assert config.model.path is not None
    wrapper = VitsTTS(config.model.path, **config.model.model_dump(exclude={"path"}))
    return wrapper.front_end, []


def new_vits_config(
    sizes: dict[str, Any], acoustic: AcousticConfig, front_end: TextFrontEnd, voices: Voices
) -> Any:
    """The ``VitsConfig`` of a model from random weights."""
    from transformers import VitsConfig

    made = VitsConfig(
        **sizes,
        vocab_size=len(front_end),
        num_speakers=max(1, len(voices.speakers)),
        spectrogram_bins=acoustic.spectrogram_bins,
        sampling_rate=acoustic.sampling_rate,
        layerdrop=0.0,
    )
    made.architectures = ["VitsModel"]
    return made


# -- the data --------------------------------------------------------------------------------


def _datasets(
    config: VitsRunConfig, splits: Sequence[PreparedSplit], preparation: AudioPreparation
) -> list[VitsDataset]:
    """One data set a split, which share the memory for prepared clips by their durations."""
    total = sum(split.report.seconds for split in splits) or 1.0
    memory = config.data.cache_megabytes << 20
    return [
        VitsDataset(
            split.rows,
            split.labels,
            preparation,
            cache_bytes=int(memory * split.report.seconds / total),
        )
        for split in splits
    ]


def _set_schedule(config: VitsRunConfig, plan: BatchPlan) -> None:
    """Turn ``decay_per_epoch`` into a factor an update."""
    if config.decay_per_epoch is None:
        return
    training = config.training
    updates = math.ceil(plan.num_batches(0) / training.gradient_accumulation_steps)
    gamma = config.decay_per_epoch ** (1.0 / max(1, updates))
    # All at once: on the way between two schedules the settings would contradict each other.
    changed = {"lr_scheduler_type": "exponential", "lr_scheduler_gamma": gamma}
    config.training = TrainingArguments.from_dict({**training.to_dict(), **changed})


def _record(
    config: VitsRunConfig,
    splits: Sequence[PreparedSplit],
    model: VitsTTS,
    preparation: AudioPreparation,
) -> dict[str, Any]:
    return {
        "manifests": {split.name: split.digest for split in splits},
        "started_from": config.model.path,
        "full_vits_fine_tuning": not config.model.generator_only,
        "acoustic": model.acoustic.model_dump(mode="json"),
        "preparation": dict(preparation.settings()),
        "tokenizer": {"tokens": len(model.front_end), "sha256": model.front_end.fingerprint()},
        "voices": model.voices.to_dict(),
    }


def _next_command(splits: Sequence[PreparedSplit], voices: Voices) -> Any:
    split = splits[1] if len(splits) > 1 else splits[0]

    def command(directory: Path) -> str:
        text = split.rows[0].text if split.rows else "Hello."
        words = ["voicehub", "synthesize", "--model", str(directory), "--text", text]
        speaker, language = voices.pairs[0] if voices.pairs else (0, 0)
        if len(voices.speakers) > 1:
            words += ["--speaker", voices.speakers[speaker]]
        if len(voices.languages) > 1:
            words += ["--language", voices.languages[language]]
        return shlex.join([*words, "--out", "speech.wav"])

    return command

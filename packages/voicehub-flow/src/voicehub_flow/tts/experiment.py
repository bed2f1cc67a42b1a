"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment
from voicehub.data.plan import FixedSizePlan
from voicehub.models.sampling import Prompt
from voicehub_data.batching import training_plan
from voicehub_data.manifest import ManifestRow
from voicehub_data.row_audio import load_row
from voicehub_data.splits import read_splits
from voicehub_flow.config import F5TTSRunConfig
from voicehub_flow.sampling.steps import Example, final_steps, spread
from voicehub_flow.tts.data import F5Collator, F5Dataset, MelReader, PreparedSplit, prepare_split
from voicehub_flow.tts.model import F5TTS
from voicehub_flow.tts.start import Start, describe_start
from voicehub_flow.tts.terms import figure_notes
from voicehub_flow.tts.voices import Voices

_GIGABYTE = 1 << 30


def build_experiment(config: F5TTSRunConfig) -> Experiment:
    """Check settings against the checkpoint, read and check the data; no weights load.

    Raises:
        ConfigurationError: settings contradict each other, the checkpoint or the vocoder.
        DataError: the data cannot be trained on; the message names rows, causes and fixes.
    """
    data, mel = config.data, config.model.mel
    rate = mel.sample_rate
    train, *evals = read_splits(data, sample_rate=rate)
    reader = MelReader(mel, data.cache_directory)
    start = describe_start(config, train, reader)
    splits = [
        prepare_split(split, start.vocabulary, start.voices, mel, data) for split in (train, *evals)
    ]
    splits[0].report.notes.extend(start.notes)
    if not evals:
        splits[0].report.notes.extend(config.evaluate_nothing())
    model = F5TTS.from_config(
        config.model,
        start.vocabulary,
        start.voices,
        scaling=start.scaling,
        durations=start.durations,
        seed=config.training.seed,
    )
    model.vocoder  # noqa: B018 - one that does not fit shows before step 0
    datasets = _datasets(config, splits, reader, start)
    return Experiment(
        model=model,
        train_dataset=datasets[0],
        eval_datasets={s.name: d for s, d in zip(splits[1:], datasets[1:], strict=True)},
        data_collator=F5Collator(config.model.objective),
        train_plan=training_plan(
            data.batches, config.training, datasets[0].planning_durations, datasets[0].ids
        ),
        eval_plans={
            split.name: FixedSizePlan(len(dataset), data.eval_batch_size, shuffle=False)
            for split, dataset in zip(splits[1:], datasets[1:], strict=True)
        },
        figure_notes=figure_notes(config.after_training.metrics),
        data_report=[split.report for split in splits],
        final_steps=final_steps(
            config.after_training, config, _examples(config, splits, model.voices)
        ),
        record=_record(config, splits, model, start),
        next_command=_next_command(splits, model.voices),
    )


def _examples(
    config: F5TTSRunConfig, splits: Sequence[PreparedSplit], voices: Voices
) -> list[Example]:
    """Prompts of the first evaluation split, or of the training data."""
    split = splits[1] if len(splits) > 1 else splits[0]
    rate = config.model.mel.sample_rate
    found: dict[str, Example] = {}
    for position in spread(config.after_training.samples, len(split.rows)):
        row = split.rows[position]
        name = row.id if row.id not in found else f"{row.id}-{position}"
        prompt = Prompt(name, text=row.text, speaker=row.speaker if len(voices) else None)
        found[name] = Example(prompt, partial(_recording, row, rate))
    return list(found.values())


def _recording(row: ManifestRow, rate: int) -> tuple[Any, int]:
    return load_row(row, rate), rate


def _datasets(
    config: F5TTSRunConfig, splits: Sequence[PreparedSplit], reader: MelReader, start: Start
) -> list[F5Dataset]:
    room = int(config.data.cache_gigabytes * _GIGABYTE)
    return [
        F5Dataset(split.rows, split.ids, split.speakers, reader, start.scaling, cache_bytes=room)
        for split in splits
    ]


def _record(
    config: F5TTSRunConfig, splits: Sequence[PreparedSplit], model: F5TTS, start: Start
) -> dict[str, Any]:
    return {
        "manifests": {split.name: split.digest for split in splits},
        "started_from": config.model.path,
        **({"checkpoint": start.record} if start.record else {}),
        "vocabulary": {
            "symbols": len(model.vocabulary),
            "sha256": model.vocabulary.fingerprint(),
        },
        "vocoder": model.vocoder.describe(),
    }


def _next_command(splits: Sequence[PreparedSplit], voices: Voices) -> Any:
    row = (splits[1] if len(splits) > 1 else splits[0]).rows[0]

    def command(directory: Path) -> str:
        words = ["voicehub", "synthesize", "--model", str(directory), "--text", row.text]
        if len(voices) and row.speaker is not None:
            words += ["--speaker", row.speaker]
        return shlex.join([*words, "--out", "speech.wav"])

    return command

"""What a run starts from: vocabulary, speakers, scaling and durations, before any weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from voicehub.checkpoints.manifest import hash_file
from voicehub.errors import CheckpointMismatchError, DataError
from voicehub.models.artifact import artifact_directory
from voicehub_data.manifest import ManifestRow
from voicehub_data.splits import SplitRows
from voicehub_data.text.spoken import spoken_texts
from voicehub_flow.config import CheckpointTextConfig, F5TTSModelConfig, F5TTSRunConfig
from voicehub_flow.text import Vocabulary
from voicehub_flow.tts.data import MelReader
from voicehub_flow.tts.durations import Durations
from voicehub_flow.tts.model import F5TTS
from voicehub_flow.tts.published import open_published
from voicehub_flow.tts.scaling import MelScaling
from voicehub_flow.tts.voices import Voices, named_speakers

#: Clips that mean and deviation of mel bins are taken over.
_SCALING_CLIPS = 4000
_SHOWN = 12


@dataclass
class Start:
    """A model that is described, not loaded.

    Attributes:
        vocabulary, voices, scaling, durations: see :class:`F5TTS`.
        notes: for the data report.
        record: for the run's record.
    """

    vocabulary: Vocabulary
    voices: Voices
    scaling: MelScaling
    durations: Durations
    notes: list[str] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)


def describe_start(config: F5TTSRunConfig, train: SplitRows, reader: MelReader) -> Start:
    """Settle everything that the training data and the checkpoint decide.

    Raises:
        DataError: characters of the training text have no token, and ``refuse`` was set.
        CheckpointError: the checkpoint cannot be read.
        CheckpointMismatchError: it does not fit the configuration.
    """
    texts = spoken_texts(train.rows, config.data.text_normalizer)
    names = named_speakers(train.rows, _speaker_setting(config))
    notes: list[str] = []
    record: dict[str, Any] = {}
    if config.init_from is not None:
        earlier = F5TTS(artifact_directory(config.init_from))
        _require_alike(earlier.config, config.model, config.init_from)
        known, voices = earlier.vocabulary, earlier.voices.extended(names)
        vocabulary = _extended(known, texts, notes, source=config.init_from)
        scaling = earlier.scaling
    elif config.model.path is not None:
        opened = open_published(config.model)
        record = {"weights": str(opened.weights), "sha256": hash_file(opened.weights).sha256}
        notes.append(f"weights: {opened.weights} (SHA-256 {record['sha256']})")
        vocabulary = _completed(opened.vocabulary, texts, config, notes)
        voices, scaling = Voices(names), MelScaling()
    else:
        vocabulary = Vocabulary.build(texts, lower=config.model.text.lower)
        voices, scaling = Voices(names), _scaling(config, train.rows, reader)
    spelt = [vocabulary.spelt(text) for text in texts]
    who = [row.speaker if len(voices) else None for row in train.rows]
    durations = Durations.fit(spelt, [row.duration or 0.0 for row in train.rows], who)
    notes.append(
        f"vocabulary: {len(vocabulary)} symbols; speakers: {len(voices) or 'not told apart'}"
    )
    return Start(vocabulary, voices, scaling, durations, notes, record)


def _require_alike(earlier: F5TTSModelConfig, own: F5TTSModelConfig, source: str) -> None:
    """Refuse settings that weights depend on and that no shape of a tensor gives away."""
    sections = {
        "mel": (earlier.mel.resolved, own.mel.resolved),
        "architecture": (earlier.architecture.model_dump(), own.architecture.model_dump()),
    }
    apart = [
        f"  - model.{section}.{name}: {theirs[name]!r} in the artifact, {value!r} here"
        for section, (theirs, ours) in sections.items()
        for name, value in ours.items()
        if theirs[name] != value
    ]
    if apart:
        raise CheckpointMismatchError(
            f"init_from {source}: its weights were trained with other settings than this run's:\n"
            + "\n".join(apart)
            + "\nGive the run those of the artifact."
        )


def _speaker_setting(config: F5TTSRunConfig) -> str:
    setting = config.model.speakers
    # A published model takes its voice from a recording, unless it is asked for more.
    return "never" if setting == "auto" and config.model.path is not None else setting


def _completed(
    known: Vocabulary, texts: Sequence[str], config: F5TTSRunConfig, notes: list[str]
) -> Vocabulary:
    """A checkpoint's vocabulary with what the training text needs beyond it."""
    text = config.model.text
    assert isinstance(text, CheckpointTextConfig)
    missing = known.missing(texts)
    if not missing or text.new_symbols == "leave_out":
        return known
    if text.new_symbols == "refuse":
        raise DataError(
            f"{len(missing)} characters of the training text are not in the checkpoint's "
            f"vocabulary: {_listed(missing)}. Normalise the text (data.text_normalizer), or set "
            "model.text.new_symbols=extend, which adds rows to the text embedding, or leave_out."
        )
    return _extended(known, texts, notes, source=str(config.model.path))


def _extended(
    known: Vocabulary, texts: Sequence[str], notes: list[str], *, source: str
) -> Vocabulary:
    missing = known.missing(texts)
    if missing:
        notes.append(
            f"vocabulary: {len(missing)} symbols are not in that of {source} and get new rows "
            f"behind its {len(known)}, which keep theirs: {_listed(missing)}"
        )
    return known.extended(missing)


def _listed(missing: dict[str, int]) -> str:
    ordered = sorted(missing.items(), key=lambda pair: -pair[1])
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(f"{symbol!r} {count}x" for symbol, count in ordered[:_SHOWN]) + more


def _scaling(config: F5TTSRunConfig, rows: Sequence[ManifestRow], reader: MelReader) -> MelScaling:
    if config.model.normalize == "none":
        return MelScaling()
    count = min(len(rows), _SCALING_CLIPS)
    chosen = (rows[place * len(rows) // count] for place in range(count))
    return MelScaling.of(reader(row) for row in chosen if _long_enough(row, reader))


def _long_enough(row: ManifestRow, reader: MelReader) -> bool:
    return (row.duration or 0.0) * reader.mel.sample_rate > reader.mel.n_fft

"""What models return: transcriptions, evaluation reports, spoken texts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class WordTiming:
    """One recognised word; ``start`` and ``end`` are seconds from the start of the audio."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcription:
    """The text of one recording.

    Attributes:
        id: The file's path, or ``audio-<position>`` for an array.
        text: Recognised text.
        words: Timings, where they were asked for.
        duration: Seconds of audio.
    """

    id: str
    text: str
    words: list[WordTiming] | None = None
    duration: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class PredictionRow:
    """One evaluated utterance.

    Attributes:
        id: Utterance id.
        reference, hypothesis: Normalised texts that were compared.
        errors: Word substitutions, deletions and insertions.
        words: Words of the reference.
        audio_filepath: The file it lies in.
        offset: Seconds from the start of that file.
        duration: Seconds.
    """

    id: str
    reference: str
    hypothesis: str
    errors: int
    words: int
    audio_filepath: str | None = None
    offset: float = 0.0
    duration: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class EvaluationReport:
    """Metrics over an evaluation set, with what they were computed from.

    Attributes:
        metrics: Values by name, for example ``wer`` and ``cer`` as fractions.
        rows: One for each evaluated utterance.
        dropped: Utterances left out, counted by reason; rows + dropped is the whole set.
        measured: Utterances that were measured; the number of rows, where each has one.
        pictures: PNG files by name, for example a DET curve.
        tables: Rows of figures by title, for example by source.
        notes: What else a reader must know: which rows were left out, which figure is missing.
    """

    metrics: dict[str, float]
    rows: list[PredictionRow] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    measured: int = -1
    pictures: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.measured < 0:
            object.__setattr__(self, "measured", len(self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; pictures, which are none, are left out."""
        return {
            "metrics": self.metrics,
            "rows": [row.to_dict() for row in self.rows],
            "dropped": self.dropped,
            "measured": self.measured,
            "tables": self.tables,
            "notes": self.notes,
        }


@dataclass(frozen=True, eq=False)
class Synthesis:
    """A text as speech, or conditions as sound.

    Attributes:
        text: What was asked for.
        waveform: Mono samples in [-1, 1], float32 (samples,).
        sampling_rate: Hz.
        mel: The log-mel frames (frames, bins) that it was made from, where the model has such.
    """

    text: str
    waveform: np.ndarray[Any, Any]
    sampling_rate: int
    mel: np.ndarray[Any, Any] | None = None

    @property
    def duration(self) -> float:
        """Seconds."""
        return len(self.waveform) / self.sampling_rate

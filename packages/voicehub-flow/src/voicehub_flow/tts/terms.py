"""What the figures of a text-to-speech run mean; no tensor library is imported."""

from __future__ import annotations

from collections.abc import Sequence

from voicehub.adapters.experiment import FigureNote

_LOSS = FigureNote(
    "loss",
    "velocity error",
    "mean squared error of the predicted velocity over the frames to be filled in; noise and data "
    "both count, so that it never comes near 0",
    "with normalize=corpus it starts at 2 and falls to 0.3 to 0.5; speech goes on becoming clearer "
    "long after it has flattened, so listen to the samples",
)
_OF_SAMPLES = {
    "wer": FigureNote(
        "sample_wer",
        "word error rate of samples",
        "what the recogniser of after_training hears, against the texts",
        "near that of vocoded recordings",
        decides=True,
    ),
    "speaker_similarity": FigureNote(
        "sample_speaker_similarity",
        "speaker similarity of samples",
        "cosine of the embeddings of samples and recordings",
        "near that of two recordings of one speaker",
        decides=True,
    ),
}


def figure_notes(metrics: Sequence[str]) -> list[FigureNote]:
    """Notes of what a run logs.

    Args:
        metrics: of samples, that the run measures at its end.
    """
    return [_LOSS, *(_OF_SAMPLES[name] for name in metrics if name in _OF_SAMPLES)]

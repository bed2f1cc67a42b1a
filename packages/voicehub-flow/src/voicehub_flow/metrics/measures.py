"""Metrics of what a model made, by the names that ``after_training.metrics`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from voicehub.errors import DataError
from voicehub_data.audio import resample
from voicehub_data.metrics import character_error_rate, word_error_rate
from voicehub_flow.metrics.embeddings import Embed, log_mel_embedding, speaker_embedding
from voicehub_flow.metrics.frechet import frechet_distance, gaussian_of
from voicehub_flow.metrics.listeners import Listeners

Wave = Any


@dataclass(frozen=True)
class Heard:
    """One sample beside its recording.

    Attributes:
        id: of the prompt.
        text: what was asked for, or what the clip is that was; None where neither is known.
        wave: float32 (samples,).
        rate: Hz.
        reference: the recording and its rate; None where there is none.
    """

    id: str
    text: str | None
    wave: Wave
    rate: int
    reference: tuple[Wave, int] | None = None


@dataclass(frozen=True)
class Judges:
    """Who measures, and how texts are compared."""

    listeners: Listeners
    normalizer: str = "basic"
    embedding: Literal["log-mel", "embedder"] = "log-mel"


Measure = Callable[[Sequence[Heard], Judges], Mapping[str, float]]


def error_rate(name: Literal["wer", "cer"]) -> Measure:
    """Errors of a recogniser over the samples of texts, as ``sample_wer`` or ``sample_cer``."""

    def measure(heard: Sequence[Heard], judges: Judges) -> Mapping[str, float]:
        spoken = [item for item in heard if item.text]
        if not spoken:
            raise DataError(f"{name}: no sample is of a text.")
        rate = judges.listeners.recogniser_rate
        waves = [resample(item.wave, item.rate, rate) for item in spoken]
        found = [result.text for result in judges.listeners.recogniser.transcribe(waves)]
        wanted = [str(item.text) for item in spoken]
        count = {"wer": word_error_rate, "cer": character_error_rate}[name]
        return {f"sample_{name}": count(wanted, found, normalizer=judges.normalizer).rate}

    return measure


def speaker_similarity(heard: Sequence[Heard], judges: Judges) -> Mapping[str, float]:
    """Mean cosine of the embeddings of samples and their recordings."""
    pairs = _with_reference(heard, "speaker_similarity")
    embed = judges.listeners.embedder.embed
    cosines = []
    for item in pairs:
        assert item.reference is not None
        recording, rate = item.reference
        made = embed([item.wave], item.rate).float()
        real = embed([recording], rate).float()
        cosines.append(float(torch.nn.functional.cosine_similarity(made, real)))
    return {"sample_speaker_similarity": float(np.mean(cosines))}


def frechet(heard: Sequence[Heard], judges: Judges) -> Mapping[str, float]:
    """Frechet distance of samples to recordings; the metric's name says over which embedding."""
    pairs = _with_reference(heard, "frechet_distance")
    if judges.embedding == "embedder":
        embed: Embed = speaker_embedding(judges.listeners.embedder)
        name = "embedder"
    else:
        embed, name = log_mel_embedding, "log_mel"
    made = np.concatenate([embed([item.wave], item.rate) for item in pairs])
    real = np.concatenate([embed([item.reference[0]], item.reference[1]) for item in pairs])  # type: ignore[index]
    distance = frechet_distance(gaussian_of(made), gaussian_of(real))
    return {f"sample_frechet_distance_{name}": distance}


MEASURES: dict[str, Measure] = {
    "wer": error_rate("wer"),
    "cer": error_rate("cer"),
    "speaker_similarity": speaker_similarity,
    "frechet_distance": frechet,
}


def _with_reference(heard: Sequence[Heard], name: str) -> list[Heard]:
    found = [item for item in heard if item.reference is not None]
    if not found:
        raise DataError(
            f"{name}: no sample has a recording to compare with. Prompts of the data have one: "
            "leave out after_training.prompts, and set after_training.samples."
        )
    return found

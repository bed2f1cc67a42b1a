"""Speaking at every evaluation: audio, pictures, and how far they are from the recordings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from voicehub.adapters.evaluation import EvaluationContext, EvaluationTask
from voicehub.trainer.media import Audio, Image
from voicehub_data.audio import resample
from voicehub_data.metrics import word_error_rate
from voicehub_data.speech_distance import audio_cepstral_distance
from voicehub_vits.config import VitsEvalConfig
from voicehub_vits.data.dataset import VitsDataset, VitsItem
from voicehub_vits.features import Spectrogram
from voicehub_vits.listeners import load_embedder, load_recogniser
from voicehub_vits.network.inference import Spoken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voicehub_vits.model import VitsTTS

    Wave = NDArray[np.float32]

#: An untrained duration predictor may ask for minutes; speech is cut at so many times its
#: recording's length.
_LONGEST = 4
#: The same for sentences without a recording.
_SECONDS_A_SYMBOL = 0.5
#: Recognisers and embedders of this project listen at 16 kHz unless they say otherwise.
_LISTENING_RATE = 16000


@dataclass(frozen=True)
class _Sample:
    """One spoken utterance beside its recording."""

    item: VitsItem
    spoken: Spoken
    wave: Wave
    reference: Wave


class SampleTask(EvaluationTask):
    """Speaks utterances of the first evaluation split, and further sentences.

    Measured: ``mel_cepstral_distance`` (dB, after dynamic time warping), ``duration_error``
    (relative error of the length), ``intelligibility_wer`` where a recogniser is given, and
    ``speaker_similarity`` (cosine) where an embedder is. Shown: audio, mel pictures and how tokens
    were laid out over frames.

    Args:
        model: the wrapper that is trained.
        config: what to speak and what to measure.
        dataset: of the first evaluation split; without one, of the training data.
    """

    name: ClassVar[str] = "samples"

    def __init__(self, model: VitsTTS, config: VitsEvalConfig, dataset: VitsDataset) -> None:
        self.model = model
        self.config = config
        count = min(config.samples, len(dataset))
        # Spread over the split, the same ones at every evaluation.
        self.positions = [position * len(dataset) // count for position in range(count)]
        self.dataset = dataset
        self._recogniser: Any = None
        self._embedder: Any = None

    def run(self, context: EvaluationContext) -> Mapping[str, float]:
        """Speak and measure; every process does the same."""
        samples = [self._sample(position) for position in self.positions]
        if context.wants_media:
            context.log_media(self._media(samples))
        if not samples:
            return {}
        rate = self.model.sampling_rate
        distances = [
            audio_cepstral_distance(
                torch.from_numpy(sample.reference), torch.from_numpy(sample.wave), rate
            ).decibels
            for sample in samples
        ]
        lengths = [
            abs(len(sample.wave) - len(sample.reference)) / len(sample.reference)
            for sample in samples
        ]
        metrics = {
            "mel_cepstral_distance": float(np.mean(distances)),
            "duration_error": float(np.mean(lengths)),
        }
        metrics.update(self._intelligibility(samples))
        metrics.update(self._similarity(samples))
        return metrics

    def _sample(self, position: int) -> _Sample:
        item = self.dataset[position]
        spoken = self.model.speak(
            item.input_ids,
            item.speaker,
            item.language,
            seed=self.config.seed,
            max_frames=_LONGEST * item.prepared.frames,
        )
        return _Sample(item, spoken, _array(spoken.waveform), _array(item.prepared.audio))

    # -- listening -------------------------------------------------------------------------

    def _intelligibility(self, samples: Sequence[_Sample]) -> dict[str, float]:
        if self.config.recogniser is None:
            return {}
        if self._recogniser is None:
            self._recogniser = load_recogniser(self.config)
        waves = [self._heard(sample.wave) for sample in samples]
        said = [result.text for result in self._recogniser.transcribe(waves)]
        wanted = [sample.item.text for sample in samples]
        return {"intelligibility_wer": word_error_rate(wanted, said).rate}

    def _similarity(self, samples: Sequence[_Sample]) -> dict[str, float]:
        if self.config.embedder is None:
            return {}
        if self._embedder is None:
            self._embedder = load_embedder(self.config)
        rate = self.model.sampling_rate
        made = self._embedder.embed([sample.wave for sample in samples], rate)
        real = self._embedder.embed([sample.reference for sample in samples], rate)
        similar = torch.nn.functional.cosine_similarity(made.float(), real.float())
        return {"speaker_similarity": float(similar.mean())}

    def _heard(self, wave: Wave) -> Wave:
        front_end = getattr(self._recogniser, "front_end", None)
        rate = int(getattr(front_end, "sample_rate", _LISTENING_RATE))
        return resample(wave, self.model.sampling_rate, rate)

    # -- showing ---------------------------------------------------------------------------

    def _media(self, samples: Sequence[_Sample]) -> dict[str, Any]:
        rate = self.model.sampling_rate
        spectrogram = Spectrogram(self.model.acoustic)
        media: dict[str, Any] = {}
        for sample in samples:
            name = sample.item.id
            media[f"{name}/audio"] = Audio(sample.wave, rate)
            media[f"{name}/recording"] = Audio(sample.reference, rate)
            media[f"{name}/mel"] = _mel_picture(spectrogram, sample.wave)
            media[f"{name}/mel_of_recording"] = _mel_picture(spectrogram, sample.reference)
            media[f"{name}/alignment"] = alignment_picture(sample.spoken.durations)
        for number, text in enumerate(self.config.sentences, start=1):
            wave = self._sentence(text, f"eval.sentences, number {number}")
            media[f"sentence-{number}/audio"] = Audio(wave, rate)
            media[f"sentence-{number}/mel"] = _mel_picture(spectrogram, wave)
        return media

    def _sentence(self, text: str, where: str) -> Wave:
        """A further sentence, in the first voice that training has heard."""
        model, acoustic = self.model, self.model.acoustic
        encoded = model.front_end.require(text, where)
        speaker, language = model.voices.pairs[0] if model.voices.pairs else (0, 0)
        seconds = _SECONDS_A_SYMBOL * encoded.symbols
        frames = math.ceil(seconds * acoustic.sampling_rate / acoustic.hop_length)
        seed = self.config.seed
        spoken = model.speak(encoded.ids, speaker, language, seed=seed, max_frames=frames)
        return _array(spoken.waveform)


def alignment_picture(durations: torch.Tensor) -> Image:
    """Tokens (rows, the first at the bottom) over frames, from frames of each token (tokens,)."""
    frames = int(durations.sum())
    token = torch.repeat_interleave(torch.arange(len(durations)), durations.cpu())
    matrix = torch.zeros(len(durations), max(1, frames))
    matrix[token, torch.arange(frames)] = 1.0
    return Image.of_matrix(matrix)


def _mel_picture(spectrogram: Spectrogram, wave: Wave) -> Image:
    smallest = spectrogram.acoustic.filter_length
    padded = np.pad(wave, (0, max(0, smallest - len(wave))))
    with torch.no_grad():
        mel = spectrogram(torch.from_numpy(np.ascontiguousarray(padded))[None])[0]
    return Image.of_matrix(mel)


def _array(values: torch.Tensor) -> Wave:
    return np.ascontiguousarray(values.detach().float().cpu().numpy())

"""From waveforms to a model's input, as the model was trained.

A processor normalises each utterance over its own samples only if the utterance is processed
alone: called on a padded batch without an attention mask, wav2vec2's includes the padding in the
statistics. So utterances are processed one by one and padded here; what an utterance becomes
never depends on its batch mates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.tensors import pad_rows
from voicehub_hf.lengths import downsampling, minimum_input_length, output_lengths

Lengths = TypeVar("Lengths")

#: Window and hop of the Kaldi features of W2V-BERT's processor, in samples (25 and 10 ms).
_KALDI_WINDOW, _KALDI_HOP = 400, 160


class ModelInputs(NamedTuple):
    """A batch for a CTC model.

    Attributes:
        inputs: Keyword arguments of the model's ``forward``: ``input_values`` (B, samples) or
            ``input_features`` (B, frames, bins), float32, padded on the right to the longest;
            ``attention_mask`` (B, samples or frames), int64, where the model was trained with one.
        lengths: Valid samples or feature frames of each utterance, (B,), int64: what
            :func:`voicehub_hf.lengths.output_lengths` takes.
    """

    inputs: dict[str, torch.Tensor]
    lengths: torch.Tensor


def feature_extractor_of(processor: Any) -> Any:
    """Return the feature extractor of a processor, or the feature extractor itself."""
    return getattr(processor, "feature_extractor", processor)


def extractor_settings(extractor: Any) -> dict[str, Any]:
    """Return the settings of a feature extractor as JSON: they change when features would."""
    settings: dict[str, Any] = json.loads(extractor.to_json_string())
    # What follows from the others, and the name of what holds the extractor.
    for name in ("processor_class", "mel_filters", "window"):
        settings.pop(name, None)
    return settings


def processor_sample_rate(processor: Any) -> int:
    """Return the sampling rate in Hz that the processor expects."""
    return int(feature_extractor_of(processor).sampling_rate)


def prepare_features(
    processor: Any, waveforms: Sequence[np.ndarray | torch.Tensor], sample_rate: int
) -> ModelInputs:
    """Turn waveforms into the input of the processor's model.

    Args:
        processor: Processor or feature extractor of one of the five CTC classes.
        waveforms: Mono, each (samples,), float in [-1, 1].
        sample_rate: Their rate in Hz.

    Raises:
        DataError: The batch is empty; the rate is not the processor's; a waveform is not mono
            or too short for the processor. The message gives its position in the batch.
        ConfigurationError: The processor pads on the left.
    """
    rows = [
        extract_features(processor, waveform, sample_rate, name=f"waveform {i} of the batch")
        for i, waveform in enumerate(waveforms)
    ]
    return pad_features(processor, rows)


def extract_features(
    processor: Any,
    waveform: np.ndarray | torch.Tensor,
    sample_rate: int,
    *,
    name: str = "the waveform",
) -> torch.Tensor:
    """Turn one waveform into an unpadded row of the model's input, for use in data workers.

    Returns:
        (samples,) or (frames, bins), float32; valid steps only.
    """
    extractor = feature_extractor_of(processor)
    _check_extractor(extractor, sample_rate)
    samples = np.asarray(waveform, dtype=np.float32)
    if samples.ndim != 1:
        raise DataError(
            f"{name} has shape {samples.shape}; expected (samples,). Mix channels to mono first."
        )
    shortest = _shortest_normalisable(extractor)
    if len(samples) < shortest:
        raise DataError(
            f"{name} has {len(samples)} samples; the processor needs at least {shortest} "
            f"({shortest / extractor.sampling_rate:.4g} s)."
        )
    key = extractor.model_input_names[0]
    features = extractor(
        samples, sampling_rate=extractor.sampling_rate, return_tensors="pt", padding=True
    )
    row: torch.Tensor = features[key][0].float()
    if key == "input_features":
        # The processors append a masked row to odd lengths or for the last window; cut it off.
        row = row[: int(features["attention_mask"][0].sum())]
    return row


def pad_features(processor: Any, rows: Sequence[torch.Tensor]) -> ModelInputs:
    """Pad rows of :func:`extract_features` on the right to the longest."""
    if not rows:
        raise DataError("The batch is empty; at least one utterance is needed.")
    extractor = feature_extractor_of(processor)
    key = extractor.model_input_names[0]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    inputs = {key: pad_rows(rows, extractor.padding_value)}
    if key == "input_features" or extractor.return_attention_mask:
        steps = torch.arange(int(lengths.max()))
        inputs["attention_mask"] = (steps < lengths[:, None]).long()
    return ModelInputs(inputs, lengths)


def feature_lengths(processor: Any, num_samples: Lengths) -> Lengths:
    """Return the length of the model's input for clips of ``num_samples`` samples.

    The samples themselves for waveform models; valid feature frames for log-mel models. Accepts
    and returns an ``int``, a NumPy array or a torch tensor.
    """
    samples: Any = num_samples
    extractor = feature_extractor_of(processor)
    kind = type(extractor).__name__
    if kind == "SeamlessM4TFeatureExtractor":
        frames = (samples - _KALDI_WINDOW) // _KALDI_HOP + 1
        return frames * (frames > 0) // extractor.stride  # type: ignore[no-any-return]
    if kind == "ParakeetFeatureExtractor":
        return samples // extractor.hop_length  # type: ignore[no-any-return]
    if kind == "WhisperFeatureExtractor":
        # Trimmed or padded to one length; frames of the padding are not valid.
        kept = samples - (samples - extractor.n_samples) * (samples > extractor.n_samples)
        return kept // extractor.hop_length  # type: ignore[no-any-return]
    if kind == "GraniteSpeech5FeatureExtractor":
        # Frames of mel features in stacks; the last one is filled up.
        stack = extractor.frame_stacking
        return (samples // extractor.hop_length + stack - 1) // stack  # type: ignore[no-any-return]
    if extractor.model_input_names[0] == "input_values":
        return num_samples
    raise ConfigurationError(f"No length formula for the feature extractor {kind}.")


def output_frames(config: Any, processor: Any, num_samples: Lengths) -> Lengths:
    """Return how many CTC frames the model emits for clips of ``num_samples`` samples."""
    return output_lengths(config, feature_lengths(processor, num_samples))


def minimum_samples(config: Any, processor: Any) -> int:
    """Return the shortest clip, in samples, that the processor and the model accept."""
    extractor = feature_extractor_of(processor)
    inputs = minimum_input_length(config)
    kind = type(extractor).__name__
    if kind == "SeamlessM4TFeatureExtractor":
        # Features are divided by their standard deviation over time: one frame has none.
        frames = max(2, inputs * int(extractor.stride))
        return _KALDI_WINDOW + (frames - 1) * _KALDI_HOP
    if kind == "ParakeetFeatureExtractor":
        return max(2, inputs) * int(extractor.hop_length)
    if kind == "WhisperFeatureExtractor":
        return inputs * int(extractor.hop_length)
    if kind == "GraniteSpeech5FeatureExtractor":
        # One frame of mel features more than whole stacks; its window needs as many samples.
        frames = (inputs - 1) * int(extractor.frame_stacking) + 1
        return max(frames * int(extractor.hop_length), int(extractor.win_length))
    return inputs


def frame_seconds(config: Any, processor: Any) -> float:
    """Return the seconds between two CTC frames."""
    extractor = feature_extractor_of(processor)
    kind = type(extractor).__name__
    per_input = 1
    if kind == "SeamlessM4TFeatureExtractor":
        per_input = _KALDI_HOP * extractor.stride
    elif kind in ("ParakeetFeatureExtractor", "WhisperFeatureExtractor"):
        per_input = extractor.hop_length
    elif kind == "GraniteSpeech5FeatureExtractor":
        per_input = extractor.hop_length * extractor.frame_stacking
    return downsampling(config) * per_input / processor_sample_rate(processor)


def _check_extractor(extractor: Any, sample_rate: int) -> None:
    if sample_rate != extractor.sampling_rate:
        raise DataError(
            f"The audio has {sample_rate} Hz, the model's processor expects "
            f"{extractor.sampling_rate} Hz. Resample before preparing features."
        )
    if extractor.padding_side != "right":
        raise ConfigurationError(
            f"The processor pads on the {extractor.padding_side}; CTC frames are counted from the "
            "start, so padding_side must be 'right'."
        )


def _shortest_normalisable(extractor: Any) -> int:
    """Return the samples below which log-mel processors divide by no deviation and give NaN."""
    kind = type(extractor).__name__
    if kind == "SeamlessM4TFeatureExtractor":
        return _KALDI_WINDOW + _KALDI_HOP
    if kind == "ParakeetFeatureExtractor":
        return 2 * int(extractor.hop_length)
    return 1

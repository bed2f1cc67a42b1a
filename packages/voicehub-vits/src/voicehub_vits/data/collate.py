"""From items to a batch, with every random draw of the objective keyed by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.data.keyed_random import derive_seed, torch_generator
from voicehub.errors import DataError
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.data.dataset import VitsItem


class VitsCollator:
    """Pads items and draws noise and segments.

    A batch holds ``input_ids`` int64 (B, tokens), ``text_lengths`` and ``frame_lengths`` int64
    (B,), ``spectrogram`` (B, bins, frames), ``segments`` (B, 1, segment_size) of recorded audio
    and ``segment_starts`` (a list, in frames), ``posterior_noise`` (B, flow_size, frames) and
    ``duration_noise`` (B, 2, tokens), ``speaker_ids`` and ``language_ids`` int64 (B,), and
    ``batch_info``. Floats are float32, padded with 0.

    Noise and segments depend on the key of the draw and the utterance's id alone; outside of
    training, on the id alone.

    Args:
        acoustic: features.
        flow_size: channels of the latents.
        pad_id: what token ids are padded with.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(self, acoustic: AcousticConfig, flow_size: int, *, pad_id: int = 0) -> None:
        self.acoustic = acoustic
        self.flow_size = flow_size
        self.pad_id = pad_id

    def __call__(self, items: Sequence[VitsItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item, or one is shorter than a segment.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        tokens = max(len(item.input_ids) for item in items)
        frames = max(item.prepared.frames for item in items)
        bins = items[0].prepared.spectrogram.shape[0]
        count = len(items)
        input_ids = torch.full((count, tokens), self.pad_id, dtype=torch.long)
        spectrogram = torch.zeros(count, bins, frames)
        posterior = torch.zeros(count, self.flow_size, frames)
        duration = torch.zeros(count, 2, tokens)
        starts, segments = [], []
        for row, item in enumerate(items):
            length, valid = len(item.input_ids), item.prepared.frames
            input_ids[row, :length] = torch.tensor(item.input_ids, dtype=torch.long)
            spectrogram[row, :, :valid] = item.prepared.spectrogram
            posterior[row, :, :valid] = _noise(item, "posterior", self.flow_size, valid)
            duration[row, :, :length] = _noise(item, "duration", 2, length)
            starts.append(self._start(item))
            segments.append(self._segment(item, starts[-1]))
        hop, rate = self.acoustic.hop_length, self.acoustic.sampling_rate
        seconds = [item.prepared.frames * hop / rate for item in items]
        return {
            "input_ids": input_ids,
            "text_lengths": torch.tensor([len(item.input_ids) for item in items]),
            "spectrogram": spectrogram,
            "frame_lengths": torch.tensor([item.prepared.frames for item in items]),
            "segments": torch.stack(segments)[:, None],
            "segment_starts": starts,
            "posterior_noise": posterior,
            "duration_noise": duration,
            "speaker_ids": torch.tensor([item.speaker for item in items]),
            "language_ids": torch.tensor([item.language for item in items]),
            "batch_info": {
                "ids": [item.id for item in items],
                "texts": [item.text for item in items],
                "keys": [item.key for item in items],
                "audio_seconds": sum(seconds),
                "padded_seconds": count * max(seconds),
            },
        }

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        return {"acoustic": self.acoustic.model_dump(mode="json"), "flow_size": self.flow_size}

    def _start(self, item: VitsItem) -> int:
        """First frame of the segment, each possible one equally likely."""
        room = item.prepared.frames - self.acoustic.segment_frames
        if room < 0:
            raise DataError(
                f"{item.id}: {item.prepared.frames} frames are fewer than a segment's "
                f"{self.acoustic.segment_frames}; drop the row or lower segment_size."
            )
        return derive_seed(*_key(item, "segment")) % (room + 1)

    def _segment(self, item: VitsItem, start: int) -> Tensor:
        hop = self.acoustic.hop_length
        return item.prepared.audio[start * hop : start * hop + self.acoustic.segment_size]


def _key(item: VitsItem, name: str) -> tuple[object, ...]:
    drawn: object = "evaluation" if item.key is None else tuple(item.key)
    return ("vits", drawn, item.id, name)


def _noise(item: VitsItem, name: str, channels: int, size: int) -> Tensor:
    # Drawn time first: the first frames do not depend on how many follow.
    generator = torch_generator(*_key(item, name))
    return torch.randn(size, channels, generator=generator).T

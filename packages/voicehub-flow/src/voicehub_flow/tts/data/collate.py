"""From items to a batch, with every random draw of the objective keyed by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import DataError
from voicehub_flow.config import LogitNormalTimeConfig, ObjectiveConfig, TimeConfig
from voicehub_flow.objective import InfillNull, LogitNormalTime, TimeSampler, UniformTime
from voicehub_flow.tts.data.dataset import F5Item


class Drawn(NamedTuple):
    """What is drawn for one item.

    Attributes:
        time: t.
        first, last: frames that are to be filled in, the last one excluded.
        drop_audio, drop_text: what is not seen.
        noise: (frames, bins).
    """

    time: float
    first: int
    last: int
    drop_audio: bool
    drop_text: bool
    noise: Tensor


class F5Collator:
    """Pads items and draws times, spans, dropped conditions and noise.

    A batch holds ``mel`` and ``noise`` float32 (B, frames, bins), ``span_mask`` bool (B, frames),
    true for the frames that are to be filled in, ``frame_lengths`` int64 (B,), ``time`` float32
    (B,), ``input_ids`` int64 (B, tokens) and ``text_lengths`` int64 (B,), ``drop_audio`` and
    ``drop_text`` bool (B,), ``speaker_ids`` int64 (B,), and ``batch_info``. Padding is 0.

    Draws depend on the key of the draw and the utterance's id alone; outside of training on the id
    alone, and then no condition is dropped.

    Args:
        objective: what is drawn.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(self, objective: ObjectiveConfig) -> None:
        self.objective = objective
        self.times = time_sampler(objective.time)
        self.null = InfillNull(objective.audio_drop, objective.joint_drop)

    def __call__(self, items: Sequence[F5Item]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one utterance.")
        drawn = [self.draw(item) for item in items]
        frames = torch.tensor([len(item.mel) for item in items])
        tokens = torch.tensor([len(item.ids) for item in items])
        shape = (len(items), int(frames.max()), items[0].mel.shape[1])
        mel, noise = torch.zeros(shape), torch.zeros(shape)
        span = torch.zeros(shape[:2], dtype=torch.bool)
        ids = torch.zeros(len(items), int(tokens.max()), dtype=torch.long)
        for row, (item, own) in enumerate(zip(items, drawn, strict=True)):
            mel[row, : len(item.mel)], noise[row, : len(item.mel)] = item.mel, own.noise
            span[row, own.first : own.last] = True
            ids[row, : len(item.ids)] = torch.tensor(item.ids)
        seconds = [item.seconds for item in items]
        return {
            "mel": mel,
            "noise": noise,
            "span_mask": span,
            "frame_lengths": frames,
            "time": torch.tensor([own.time for own in drawn]),
            "input_ids": ids,
            "text_lengths": tokens,
            "drop_audio": torch.tensor([own.drop_audio for own in drawn]),
            "drop_text": torch.tensor([own.drop_text for own in drawn]),
            "speaker_ids": torch.tensor([item.speaker for item in items]),
            "batch_info": {
                "ids": [item.id for item in items],
                "texts": [item.text for item in items],
                "keys": [item.key for item in items],
                "audio_seconds": sum(seconds),
                "padded_seconds": len(items) * max(seconds),
            },
        }

    def draw(self, item: F5Item) -> Drawn:
        """Everything that is drawn for an item."""
        key: object = "evaluation" if item.key is None else tuple(item.key)
        generator = torch_generator("flow", key, item.id, "objective")
        time = float(self.times.sample(1, generator))
        share, place = torch.rand(2, generator=generator).tolist()
        drops = self.null.draw(1, generator, training=item.key is not None)
        frames, bins = item.mel.shape
        low, high = self.objective.infill_min, self.objective.infill_max
        size = max(1, int((low + (high - low) * share) * frames))
        first = min(int(place * (frames - size + 1)), frames - size)
        # Noise last and time first: the first frames do not depend on how many follow.
        noise = torch.randn(frames, bins, generator=generator)
        return Drawn(time, first, first + size, bool(drops.audio), bool(drops.text), noise)

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        return self.objective.model_dump(mode="json")


def time_sampler(config: TimeConfig) -> TimeSampler:
    """The sampler that a configuration names."""
    if isinstance(config, LogitNormalTimeConfig):
        return LogitNormalTime(config.mean, config.scale)
    return UniformTime()

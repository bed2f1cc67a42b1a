"""From clips to a batch, with every draw of the objective; all of them are keyed by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import DataError
from voicehub_flow.objective import AudioVisualNull, TimeSampler
from voicehub_flow.store.dataset import StoreItem
from voicehub_flow.store.shapes import FeatureShapes


class StoreCollator:
    """Pads latents to the longest of the batch and draws what the objective needs.

    The batch holds float32 ``mean, std`` and ``noise, epsilon`` (batch, frames, channels), ``time``
    (batch,), ``text, clip, sync`` (batch, steps, channels), bool ``no_text, no_clip, no_sync``
    (batch,), true where the model's null condition stands in, int64 ``frames`` (batch,), and, only
    where something is padded, bool ``mask`` (batch, frames).

    A modality that a clip does not have is replaced first; what the null policy draws comes on top
    of it. In training draws are keyed by (seed, epoch, draw, clip); outside of it by the clip's id
    alone, so that two evaluations of one model are equal, and nothing is dropped.

    Args:
        shapes: sizes of features, for what is absent.
        times: distribution of t.
        null: which conditions are dropped.
    """

    #: Draws by key alone.
    deterministic = True

    def __init__(self, shapes: FeatureShapes, times: TimeSampler, null: AudioVisualNull) -> None:
        self.shapes, self.times, self.null = shapes, times, null

    def __call__(self, items: Sequence[StoreItem]) -> dict[str, Any]:
        """Return the batch.

        Raises:
            DataError: there is no item.
        """
        if not items:
            raise DataError("a batch needs at least one clip.")
        lengths = torch.tensor([len(item.mean) for item in items])
        drawn = [self._draws(item) for item in items]
        shapes = self.shapes
        batch: dict[str, Any] = {
            "mean": _padded([item.mean for item in items]),
            "std": _padded([item.std for item in items]),
            "noise": _padded([each["noise"] for each in drawn]),
            "epsilon": _padded([each["epsilon"] for each in drawn]),
            "time": torch.cat([each["time"] for each in drawn]),
            "text": torch.stack([item.text for item in items]),
            "clip": _present([i.clip for i in items], shapes.clip_frames, shapes.clip_dim),
            "sync": _present([i.sync for i in items], shapes.sync_frames, shapes.sync_dim),
            "frames": lengths,
        }
        absent = {
            "clip": torch.tensor([item.clip is None for item in items]),
            "sync": torch.tensor([item.sync is None for item in items]),
            "text": torch.zeros(len(items), dtype=torch.bool),
        }
        for name, missing in absent.items():
            batch[f"no_{name}"] = missing | torch.cat([each[name] for each in drawn])
        longest = int(lengths.max())
        if int(lengths.min()) < longest:
            batch["mask"] = torch.arange(longest) < lengths[:, None]
        batch["batch_info"] = {
            "ids": [item.id for item in items],
            "texts": [item.caption for item in items],
            "keys": [item.key for item in items],
        }
        return batch

    def _draws(self, item: StoreItem) -> dict[str, Tensor]:
        key: tuple[Any, ...] = ("evaluation",) if item.key is None else tuple(item.key)
        generator = torch_generator("flow.store", key, item.id)
        drops = self.null.draw(1, generator, training=item.key is not None)
        time = self.times.sample(1, generator)
        shape = item.mean.shape
        return {
            "clip": drops.clip,
            "sync": drops.sync,
            "text": drops.text,
            "time": time,
            "noise": torch.randn(shape, generator=generator),
            "epsilon": torch.randn(shape, generator=generator),
        }

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when batches would."""
        return {"shapes": self.shapes.to_dict(), "times": repr(self.times), "null": repr(self.null)}


def _padded(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


def _present(rows: Sequence[Tensor | None], steps: int, channels: int) -> Tensor:
    """Features of a batch, zeros where they are absent."""
    empty = torch.zeros(steps, channels)
    return torch.stack([empty if row is None else row for row in rows])

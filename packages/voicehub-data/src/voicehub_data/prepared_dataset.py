"""Utterances as inputs of a model, decoded and prepared once where nothing is drawn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from voicehub.data.keyed_random import SampleKey
from voicehub_data.augment.base import Augmentation
from voicehub_data.dataset import SpeechDataset
from voicehub_data.manifest.rows import ManifestRow
from voicehub_data.memory import ItemMemory
from voicehub_data.row_dataset import RowDataset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = TypeVar("Item")
Input = TypeVar("Input")


class PreparedDataset(RowDataset[Item], Generic[Item, Input]):
    """Decodes, augments and prepares rows.

    Without augmentation of the audio, prepared inputs are kept in memory; with it, decoded audio.

    Args:
        rows: utterances.
        sample_rate: Hz that they are decoded to.
        augment: of the audio; None for none.
        cache_bytes: memory for what is kept, in each worker.

    Raises:
        DataError: there are no rows, or two rows have one id.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        *,
        sample_rate: int,
        augment: Augmentation | None,
        cache_bytes: int,
    ) -> None:
        keeps_inputs = augment is None
        self.speech = SpeechDataset(
            rows,
            sample_rate=sample_rate,
            augment=augment,
            cache_bytes=0 if keeps_inputs else cache_bytes,
        )
        self.rows = self.speech.rows
        self._memory: ItemMemory[tuple[Input, float]] = ItemMemory(
            cache_bytes if keeps_inputs else 0
        )

    @abstractmethod
    def prepare(self, audio: NDArray[np.float32]) -> Input:
        """The model's input of mono audio (samples,)."""

    def prepared(self, index: int, key: SampleKey | None) -> tuple[Input, float]:
        """The model's input of one draw, and seconds of its audio.

        Raises:
            DataError: the audio cannot be decoded; the message names file and row.
        """

        def made() -> tuple[Input, float]:
            item = self.speech.get_item(index, key)
            return self.prepare(item["audio"]), float(item["duration"])

        return self._memory.get(index, made)

    @property
    def planning_durations(self) -> list[float]:
        """Seconds that each item may last at most."""
        return self.speech.planning_durations

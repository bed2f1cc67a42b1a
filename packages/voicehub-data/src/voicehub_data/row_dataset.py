"""What all data sets over manifest rows answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from voicehub.data.keyed_random import SampleKey
from voicehub_data.manifest.rows import ManifestRow

Item = TypeVar("Item")


class RowDataset(ABC, Generic[Item]):
    """A map-style data set, an item a row; random draws are keyed by sample.

    Attributes:
        rows: in the order of the items. Packed (:class:`~voicehub.data.packed_rows.PackedRows`):
            worker processes would copy a list of objects page by page as they read it.
    """

    rows: Sequence[ManifestRow]

    @abstractmethod
    def get_item(self, index: int, key: SampleKey | None) -> Item:
        """The item of one draw; equal keys give equal items in any process."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        """The item outside training, without augmentation."""
        return self.get_item(index, None)

    def sample_id(self, index: int) -> str:
        """Id of an item."""
        return self.rows[index].id

    @property
    def ids(self) -> list[str]:
        """Id of every item."""
        return [self.sample_id(index) for index in range(len(self))]

    @property
    def planning_durations(self) -> list[float]:
        """Seconds that each item may last at most: what a batch plan should use."""
        return [row.duration or 0.0 for row in self.rows]

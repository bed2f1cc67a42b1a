"""Batches of pieces whose classes are drawn by weight."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voicehub.data.keyed_random import numpy_generator
from voicehub.data.plan import permutation
from voicehub.errors import ConfigurationError
from voicehub_data.samplers.chunks import RandomChunkPlan


def class_draws(
    counts: NDArray[np.int64], exponent: float, draws: int, *key: object
) -> NDArray[np.int64]:
    """Draw classes with chances in proportion to ``count ** exponent``.

    Args:
        counts: samples of each class; a class without any is never drawn.
        exponent: 1 draws as the data is, 0 draws all classes alike.
        draws: how many.
        key: of the generator.
    """
    weights = np.where(counts > 0, counts.astype(np.float64) ** exponent, 0.0)
    uniform = numpy_generator("voicehub.class-draws", *key).random(draws)
    bounds = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(bounds, uniform, side="right"), len(counts) - 1)


class ClassWeightedPlan(RandomChunkPlan):
    """As many pieces an epoch as there are samples, their classes drawn by weight.

    Within a class every sample is taken before one is taken again.

    Args:
        durations, chunk_seconds, max_padded_seconds, max_batch_size, seed: as of
            :class:`RandomChunkPlan`.
        labels: class of every sample, from 0 on.
        exponent: chances are in proportion to (samples of the class) ** exponent.

    Raises:
        ConfigurationError: a setting is out of range, or labels and durations differ in number.
    """

    kind = "class-weighted"

    def __init__(
        self,
        durations: Sequence[float],
        labels: Sequence[int],
        chunk_seconds: tuple[float, float],
        max_padded_seconds: float,
        max_batch_size: int,
        *,
        exponent: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(durations, chunk_seconds, max_padded_seconds, max_batch_size, seed)
        if len(labels) != len(durations):
            raise ConfigurationError(
                f"{len(labels)} labels were given for {len(durations)} durations; expected one "
                "each."
            )
        if exponent < 0:
            raise ConfigurationError(f"exponent is {exponent}; expected 0 or more.")
        self.labels = np.asarray(labels, dtype=np.int64)
        self.exponent = exponent
        self.counts = np.bincount(self.labels)
        grouped = np.argsort(self.labels, kind="stable")
        self.members = np.split(grouped, np.cumsum(self.counts)[:-1])

    def order(self, epoch: int) -> list[int]:
        """Return the samples of an epoch, by drawn class."""
        drawn = class_draws(self.counts, self.exponent, self.num_items, self.kind, self.seed, epoch)
        return self.samples_of(drawn, epoch)

    def samples_of(self, classes: NDArray[np.int64], epoch: int) -> list[int]:
        """Return a sample of each class asked for, none again before all were taken."""
        taken: dict[int, int] = {}
        orders: dict[tuple[int, int], NDArray[np.int64]] = {}
        chosen = []
        for label in classes.tolist():
            members = self.members[label]
            turn = taken.get(label, 0)
            taken[label] = turn + 1
            lap, position = divmod(turn, len(members))
            if (label, lap) not in orders:
                orders[label, lap] = permutation(
                    len(members), "class-members", self.seed, epoch, label, lap
                )
            chosen.append(int(members[orders[label, lap][position]]))
        return chosen

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings and digests that decide the order."""
        digest = hashlib.sha256(self.labels.astype("<i8").tobytes()).hexdigest()
        return {**super().fingerprint(), "exponent": self.exponent, "labels_sha256": digest}

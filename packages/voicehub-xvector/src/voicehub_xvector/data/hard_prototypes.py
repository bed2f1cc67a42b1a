"""Batches of speakers whose prototypes lie near each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voicehub.data.keyed_random import numpy_generator
from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub_data.samplers import ClassWeightedPlan, class_draws


class HardPrototypesPlan(ClassWeightedPlan):
    """Groups of a drawn speaker and those nearest to it, several recordings of each.

    Which speakers are near is told by ``set_neighbours`` at the start of each epoch; until it is
    told they are drawn at random. The number of batches does not depend on it.

    Args:
        durations, labels, chunk_seconds, max_padded_seconds, max_batch_size, exponent, seed: as of
            ``ClassWeightedPlan``; first speakers of groups are drawn by weight.
        neighbours: speakers that join each of them.
        per_speaker: recordings of each speaker of a group.

    Raises:
        ConfigurationError: there are fewer speakers than a group has, or a batch is smaller.
    """

    kind = "hard-prototypes"

    def __init__(
        self,
        durations: Sequence[float],
        labels: Sequence[int],
        chunk_seconds: tuple[float, float],
        max_padded_seconds: float,
        max_batch_size: int,
        *,
        neighbours: int = 8,
        per_speaker: int = 1,
        exponent: float = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(
            durations, labels, chunk_seconds, max_padded_seconds, max_batch_size,
            exponent=exponent, seed=seed,
        )  # fmt: skip
        self.neighbours = neighbours
        self.per_speaker = per_speaker
        self.table: NDArray[np.int64] | None = None
        speakers = int((self.counts > 0).sum())
        if neighbours >= speakers:
            raise ConfigurationError(
                f"sampler.neighbours is {neighbours}; there are {speakers} speakers, so a speaker "
                f"has at most {speakers - 1} others."
            )
        group = (neighbours + 1) * per_speaker
        if self.batch_size(chunk_seconds[1]) < group:
            raise ConfigurationError(
                f"a group of (neighbours + 1) x per_speaker = {group} pieces does not fit into a "
                f"batch of {self.batch_size(chunk_seconds[1])} (sampler.max_padded_seconds, "
                "sampler.max_batch_size)."
            )

    def set_neighbours(self, table: NDArray[np.int64] | None) -> None:
        """Take the nearest speakers of each speaker, (speakers, ``neighbours``)."""
        self.table = table
        self._cached = None

    def batch_size(self, seconds: float) -> int:
        """Return the pieces of a batch: whole groups."""
        group = (self.neighbours + 1) * self.per_speaker
        size = super().batch_size(seconds)
        return max(1, size // group) * group if size >= group else size

    def order(self, epoch: int) -> list[int]:
        """Return the samples of an epoch, group after group."""
        group = (self.neighbours + 1) * self.per_speaker
        count = -(-self.num_items // group)
        first = class_draws(self.counts, self.exponent, count, self.kind, self.seed, epoch)
        classes = np.concatenate([self._group(int(label), epoch) for label in first])
        return self.samples_of(classes[: self.num_items], epoch)

    def _group(self, label: int, epoch: int) -> NDArray[np.int64]:
        if self.table is not None:
            near = self.table[label]
        else:
            present = np.flatnonzero(self.counts)
            others = present[present != label]
            draws = numpy_generator("voicehub.hard-prototypes", self.seed, epoch, label)
            near = others[np.argsort(draws.random(len(others)))[: self.neighbours]]
        return np.repeat(np.concatenate([[label], near]), self.per_speaker)

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that decide the order, beside the prototypes."""
        own = {"neighbours": self.neighbours, "per_speaker": self.per_speaker}
        return {**super().fingerprint(), **own}


class NeighbourUpdate(TrainerCallback):
    """Looks up the nearest prototypes at the start of each epoch.

    So it does before the first, whose prototypes an earlier stage may have trained. A run that goes
    on within an epoch keeps the table that the epoch began with.

    Args:
        plan: that is told.
    """

    def __init__(self, plan: HardPrototypesPlan) -> None:
        self.plan = plan

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Measure distances, unless a part of the epoch is done."""
        if state.train_batch_cursor:
            return
        import torch

        loss = context["adapter"].module.loss
        classes = torch.arange(len(self.plan.counts), device=loss.weight.device)
        near = loss.nearest_classes(classes, self.plan.neighbours)
        self.plan.set_neighbours(near.cpu().numpy())

    def state_dict(self) -> dict[str, Any]:
        """The table."""
        table = self.plan.table
        return {"neighbours": None if table is None else table.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give the plan its table back."""
        table = state["neighbours"]
        self.plan.set_neighbours(None if table is None else np.asarray(table, dtype=np.int64))

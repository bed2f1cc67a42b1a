"""How long a run is: computed from the batch plan itself, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.routes import route_names
from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.feed import DataFeed


@dataclass(frozen=True)
class Horizon:
    """Length of a run.

    Attributes:
        max_steps: updates after which the run ends.
        num_epochs: whole or begun epochs that are read at most; None when only ``max_steps``
            ends the run.
        route_updates: updates of each route, the horizon of its schedule.
    """

    max_steps: int
    num_epochs: int | None
    route_updates: Mapping[str, int]


def plan_horizon(args: TrainingArguments, feed: DataFeed, adapter: TrainingAdapter) -> Horizon:
    """Updates of the whole run and of each route.

    The number of batches may differ by epoch (length-bucketed plans), so every epoch is asked.

    Raises:
        ConfigurationError: there is not a single update to do.
    """
    if args.max_steps > 0:
        max_steps, num_epochs = args.max_steps, None
        if feed.num_updates(0) == 0:
            max_steps = 0
    elif feed.num_updates(0) is None:
        raise ConfigurationError(
            "The training data is a stream of unknown length: set max_steps to say how long to "
            "train."
        )
    else:
        whole = math.floor(args.num_train_epochs)
        fraction = args.num_train_epochs - whole
        max_steps = sum(feed.num_updates(epoch) or 0 for epoch in range(whole))
        if fraction:
            max_steps += math.ceil(fraction * (feed.num_updates(whole) or 0))
        num_epochs = math.ceil(args.num_train_epochs)
    if max_steps < 1:
        raise ConfigurationError(
            "The run has no update to do: the training data gives no full batch. Check the data "
            "set's size, per_device_train_batch_size and dataloader_drop_last."
        )
    return Horizon(max_steps, num_epochs, _route_updates(adapter, max_steps))


def _route_updates(adapter: TrainingAdapter, steps: int) -> dict[str, int]:
    """Updates of each route in ``steps`` steps: phases repeat with a period."""
    period = math.lcm(*(phase.frequency for phase in adapter.phases))
    counts = dict.fromkeys(adapter.routes, 0)
    for step in range(min(period, steps)):
        repeats = (steps - step + period - 1) // period
        joint: set[str] = set()  # phases that step together advance a shared route once
        for phase in adapter.due_phases(step):
            names = route_names(phase)
            if phase.optimizer_step_after_phase:
                for name in names:
                    counts[name] += repeats
            else:
                joint.update(names)
        for name in joint:
            counts[name] += repeats
    return {name: max(1, count) for name, count in counts.items()}

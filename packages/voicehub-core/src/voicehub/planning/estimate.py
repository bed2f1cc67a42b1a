"""The estimate of one run: what it needs, and what it would run on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from voicehub.planning.advice import Situation, how_to_fit, room_on
from voicehub.planning.allocations import AVERAGES, OPTIMIZER
from voicehub.planning.cards import Card, cards, needed_on_card, smallest
from voicehub.planning.rehearsal import Rehearsal, TrainerFactory, rehearse
from voicehub.planning.sharing import on_each_process
from voicehub.planning.work import Work
from voicehub.plugins import hooks

if TYPE_CHECKING:
    from voicehub.models.assets import AssetState
    from voicehub.trainer.arguments import TrainingArguments

#: Of data that has to be fetched: the archive, what is unpacked from it, and an index.
DATA_FACTOR = 2.05


@dataclass(frozen=True)
class Disk:
    """Bytes on disk.

    Attributes:
        downloads: checkpoints that have to be fetched first.
        data: data sets that have to be fetched, with room to unpack them.
        checkpoints: as many as are kept, and the one being written.
        models: what the run leaves: the final weights, and averaged ones where it keeps some.
    """

    downloads: int
    data: int
    checkpoints: int
    models: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.downloads + self.data + self.checkpoints + self.models


@dataclass(frozen=True)
class Estimate:
    """What one run needs.

    Attributes:
        name: of the preset or stage.
        rehearsal: a step on shapes.
        strategy, processes: for which ``memory`` holds.
        memory: bytes by kind on each process.
        disk: bytes on disk.
        half: whether it computes in half precision.
        card: the smallest that fits, or the one asked for; None where no card of the table does.
        fits: whether it fits on ``card``.
        epoch_seconds: bounds of the time of an epoch on ``card``; None for a stream or no card.
        advice: what to change where it does not fit.
    """

    name: str
    rehearsal: Rehearsal
    strategy: str
    processes: int
    memory: Mapping[str, int]
    disk: Disk
    half: bool
    card: Card | None
    fits: bool
    epoch_seconds: tuple[float, float] | None
    advice: Sequence[str]

    @property
    def peak(self) -> int:
        """Bytes of tensors at the worst moment, on each process."""
        return sum(self.memory.values())

    @property
    def card_bytes(self) -> float:
        """Bytes that a card must have."""
        return needed_on_card(self.peak)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = asdict(self)
        values["memory"] = dict(self.memory)
        values["peak_bytes"], values["card_bytes"] = self.peak, int(self.card_bytes)
        values["disk"]["total"] = self.disk.total
        return values


def estimate(
    name: str,
    make_trainer: TrainerFactory,
    args: TrainingArguments,
    config: Mapping[str, Any],
    assets: Sequence[AssetState],
    *,
    processes: int = 1,
    card: Card | None = None,
) -> Estimate:
    """Rehearse a run and work out the rest.

    Args:
        name: what the result is called.
        make_trainer: see :func:`voicehub.planning.rehearsal.rehearse`.
        args: the arguments of the real run, whose precision and strategy count.
        config: the run's configuration as plain data, for advice.
        assets: what the configuration names.
        processes: cards that the run is for.
        card: the one to judge by; the smallest that fits by default.
    """
    found, memory = planned_memory(make_trainer, args, processes=processes)
    half = args.fp16 or args.bf16
    peak = sum(memory.values())
    usable = [entry for entry in cards() if entry.bf16 or not args.bf16]
    chosen = card or smallest(peak, usable)
    fits = chosen is not None and chosen.holds(peak)
    judged = chosen or usable[-1]
    situation = Situation(
        memory=memory,
        alone=found.memory,
        room=room_on(judged),
        bf16=judged.bf16,
        half=half,
        config=config,
        parts=found.parameters.parts,
        processes=processes,
    )
    return Estimate(
        name,
        found,
        args.strategy,
        processes,
        memory,
        _disk(found, args, assets),
        half,
        chosen,
        fits,
        None if chosen is None else _epoch(found, chosen, half=half, processes=processes),
        [] if fits else how_to_fit(situation),
    )


def planned_memory(
    make_trainer: TrainerFactory,
    args: TrainingArguments,
    *,
    processes: int = 1,
    on_card: bool = True,
) -> tuple[Rehearsal, dict[str, int]]:
    """Rehearse a run, and return that with the bytes by kind on each process.

    Args:
        make_trainer: see :func:`voicehub.planning.rehearsal.rehearse`.
        args: of the real run.
        processes: that it is for.
        on_card: count what its kernels need, and leave out averages that
            ``posthoc_ema_offload`` keeps in main memory.
    """
    sends = processes > 1 and args.strategy not in ("torch", "fsdp")
    with contextlib.ExitStack() as stack:
        for context in hooks.without_weights():
            stack.enter_context(context)
        found = rehearse(make_trainer, sends=sends, on_card=on_card)
    memory = on_each_process(
        found.memory,
        args.strategy,
        processes,
        found.parameters.blocks,
        accumulates=args.gradient_accumulation_steps > 1,
    )
    if on_card and args.posthoc_ema_offload:
        memory.pop(AVERAGES, None)
    return found, memory


def _epoch(
    found: Rehearsal, card: Card, *, half: bool, processes: int
) -> tuple[float, float] | None:
    """Bounds of an epoch's seconds: the worst batch's work by its share of the epoch."""
    if not found.batch_share:
        return None
    whole: Work = found.batch_work.scaled(1 / found.batch_share / processes)
    return card.seconds(whole, half=half)


def to_fetch(assets: Sequence[AssetState]) -> tuple[int, int]:
    """Bytes on disk of the checkpoints, and of the data sets, that have to be fetched first."""
    remote = [asset for asset in assets if asset.state == "remote"]
    data = sum(asset.size for asset in remote if asset.asset.kind == "dataset")
    return sum(asset.size for asset in remote) - data, round(data * DATA_FACTOR)


def _disk(found: Rehearsal, args: TrainingArguments, assets: Sequence[AssetState]) -> Disk:
    weights = sum(found.parameters.bytes_by_dtype.values())
    state = sum(found.memory.get(kind, 0) for kind in (OPTIMIZER, AVERAGES))
    kept = 0
    if args.save_strategy != "no":
        kept = 1 + (args.save_total_limit or _checkpoints_of(args, found))
    models = weights * (2 if args.ema_decay is not None else 1)
    return Disk(*to_fetch(assets), kept * (weights + state), models)


def _checkpoints_of(args: TrainingArguments, found: Rehearsal) -> int:
    """How many a whole run writes."""
    a_epoch = found.updates_per_epoch or 0
    updates = args.max_steps if args.max_steps > 0 else round(args.num_train_epochs * a_epoch)
    if args.save_strategy == "epoch":
        return max(1, -(-updates // max(1, a_epoch)))
    return max(1, updates // args.save_steps)

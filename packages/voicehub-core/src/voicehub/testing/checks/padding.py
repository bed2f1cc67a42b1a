"""An item alone and the same item padded: the same loss, the same gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import Probe, added, difference

_FILLS = (1e3, -7.5)


def padding_mates(case: ConformanceCase, directory: Path) -> str:
    """A short item beside a long one gives the sum of what both give alone.

    The long one is padded nowhere, so that any difference is the short one's.
    """
    probe, (short, long) = Probe(case), _short_and_long(case)
    together = probe.measure([short, long])
    alone, other = probe.measure([short]), probe.measure([long])
    worst = 0.0
    for phase, result in together.items():
        gap, where = difference(result, added(alone[phase], other[phase]))
        assert gap <= probe.tolerance, (
            f"phase {phase!r}: beside a longer item, {where} differs by {gap:.2g} "
            f"(limit {probe.tolerance:g}). Does every layer mask its padding?"
        )
        worst = max(worst, gap)
    return f"largest difference {worst:.1g}"


def padding_garbage(case: ConformanceCase, directory: Path) -> str:
    """Numbers in the padding change neither the loss nor a gradient."""
    probe, items = Probe(case), _short_and_long(case)
    clean = probe.measure(items)
    fields: list[str] = []
    for fill in _FILLS:
        fields, change = _filler(case, probe, items, fill)
        assert fields, "no field of the batch is padded: give lengths that differ more"
        for phase, result in probe.measure(items, change).items():
            gap, where = difference(result, clean[phase])
            assert gap <= probe.tolerance, (
                f"phase {phase!r}: {fill:g} in the padding of {', '.join(fields)} changes {where} "
                f"by {gap:.2g} (limit {probe.tolerance:g}). Is the padding zeroed before a layer "
                "mixes it with what is valid?"
            )
    return f"padding of {', '.join(fields)} filled with {' and '.join(f'{f:g}' for f in _FILLS)}"


def _short_and_long(case: ConformanceCase) -> list[Any]:
    shortest, longest = case.lengths
    return [case.item(shortest, 1), case.item(longest, 2)]


def _filler(
    case: ConformanceCase, probe: Probe, items: Sequence[Any], fill: float
) -> tuple[list[str], Callable[[Any], Any]]:
    """Return the padded fields, and a function that overwrites their padding.

    What is padding follows from the shape that an item has in a batch of its own.
    """
    batch, _, _ = probe.batch(items)
    if not isinstance(batch, Mapping):
        return [], lambda inputs: inputs
    alone = [probe.batch([item])[0] for item in items]
    masks: dict[str, Tensor] = {}
    for key in case.garbage_fields(batch):
        mask = torch.ones(batch[key].shape, dtype=torch.bool)
        for row, single in enumerate(alone):
            valid = tuple(slice(0, size) for size in single[key].shape[1:])
            mask[row][valid] = False
        if bool(mask.any()):
            masks[key] = mask

    def change(inputs: Any) -> Any:
        filled = {key: inputs[key].masked_fill(mask, fill) for key, mask in masks.items()}
        return {**inputs, **filled}

    return sorted(masks), change

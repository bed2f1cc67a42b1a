"""Graphics cards: what they hold, and how fast they can be at best.

The table is data, ``cards.json``, in ascending order of memory: dense rates of the makers' data
sheets, without sparsity.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

if TYPE_CHECKING:
    from voicehub.planning.work import Work

GIB = 2**30
#: What a process takes on a card beside its tensors (context, library handles), and what the
#: caching allocator leaves unused between blocks.
CONTEXT_BYTES, FRAGMENTATION = 0.7 * GIB, 0.10
#: Seconds to start one kernel from Python.
_LAUNCH = 8e-6
#: Shares of the best rates that training code reaches: a well-tuned one, and a common one.
_GOOD, _COMMON = 0.6, 0.2


@dataclass(frozen=True)
class Card:
    """One card.

    Attributes:
        name: as data centres call it.
        gib: memory in GiB.
        fp32_tflops, half_tflops: best rates in float32 and on float16 (bfloat16) tensor cores.
        gb_per_s: memory bandwidth in GB/s.
        bf16: whether it computes in bfloat16.
    """

    name: str
    gib: float
    fp32_tflops: float
    half_tflops: float
    gb_per_s: float
    bf16: bool

    def holds(self, tensors: float) -> bool:
        """Whether so many bytes of tensors fit beside what a process takes anyway."""
        return needed_on_card(tensors) <= self.gib * GIB

    def seconds(self, work: Work, *, half: bool) -> tuple[float, float]:
        """Return bounds of the time of ``work``: a roofline (Williams et al. 2009) at both ends.

        The lower one has everything but matrix products fused, and 60 % of the best rate; the
        upper one is eager execution at 20 %.
        """
        rate = (self.half_tflops if half else self.fp32_tflops) * 1e12
        bandwidth = self.gb_per_s * 1e9
        low = max(work.flops / (_GOOD * rate), work.needed_bytes / bandwidth)
        high = work.flops / (_COMMON * rate) + work.moved_bytes / bandwidth + _LAUNCH * work.ops
        return low, max(low, high)


def needed_on_card(tensors: float) -> float:
    """Bytes that a card must have for so many bytes of tensors."""
    return tensors * (1 + FRAGMENTATION) + CONTEXT_BYTES


@lru_cache(maxsize=1)
def cards() -> tuple[Card, ...]:
    """Every card of the table, the smallest memory first."""
    text = files("voicehub.planning").joinpath("cards.json").read_text(encoding="utf-8")
    return tuple(Card(**entry) for entry in json.loads(text))


def card_named(name: str) -> Card:
    """Return a card.

    Raises:
        ConfigurationError: the table has none of that name.
    """
    known = {card.name.lower(): card for card in cards()}
    card = known.get(name.lower())
    if card is None:
        names = [card.name for card in cards()]
        raise ConfigurationError(
            f"No card is called {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}."
        )
    return card


def smallest(tensors: float, among: Sequence[Card] | None = None) -> Card | None:
    """Return the card with the least memory that holds so many bytes of tensors."""
    chosen = cards() if among is None else among
    return next((card for card in chosen if card.holds(tensors)), None)


def gib(size: float) -> str:
    """Bytes for people."""
    if size >= GIB / 10:
        return f"{size / GIB:.2f} GiB"
    return f"{size / 2**20:.1f} MiB"

"""How long a text lasts, fitted to the training corpus in closed form.

Seconds are a sum over symbols and a constant, times the speaker's pace. The sum is a ridge
regression towards equal symbols, so that rare ones get the mean; the pace is the speaker's time
over what the sum says. Nothing is trained for it, and a text of known words lasts as they did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Symbols seen so often count as much as the prior that all symbols last alike.
_PRIOR_COUNT = 2.0
_ROUNDS = 3
#: No symbol is shorter on average, whatever the regression says.
_SHORTEST = 0.01
#: Texts whose symbols are counted at once: a row of thousands of numbers each.
_CHUNK = 2048


@dataclass(frozen=True)
class Durations:
    """Seconds of texts.

    Attributes:
        symbols: seconds of each.
        other: seconds of a symbol that is not among them.
        constant: seconds of every text.
        paces: factor of each speaker.
    """

    symbols: Mapping[str, float] = field(default_factory=dict)
    other: float = 0.08
    constant: float = 0.0
    paces: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, texts: Sequence[str], seconds: Sequence[float], speakers: Sequence[str | None]
    ) -> Durations:
        """Fit to a corpus.

        Args:
            texts: as they are spelt.
            seconds: of each.
            speakers: of each; None where nobody is told apart.
        """
        spelt = _Spelt(texts)
        target = np.asarray(seconds, dtype=np.float64)
        who = sorted({name for name in speakers if name is not None})
        rows = {name: row for row, name in enumerate(who)}
        # Nobody comes last, at the pace 1.
        place = np.array([len(who) if s is None else rows[s] for s in speakers], dtype=np.int64)
        paces = np.ones(len(who) + 1)
        lasting = np.bincount(place, target, minlength=len(who) + 1)
        for _ in range(_ROUNDS if who else 1):
            rate, constant, apart = spelt.regression(target / paces[place])
            said = np.bincount(place, spelt.sums(rate + apart) + constant, minlength=len(who) + 1)
            paces[:-1] = lasting[:-1] / said[:-1]
        fitted = {name: float(rate + extra) for name, extra in zip(spelt.names, apart, strict=True)}
        named = {name: float(paces[row]) for name, row in rows.items()}
        return cls(fitted, float(rate), float(constant), named)

    def seconds(self, text: str, speaker: str | None = None) -> float:
        """Seconds of a text as it is spelt, in a speaker's pace or the mean one."""
        if speaker is not None and speaker in self.paces:
            pace = self.paces[speaker]
        else:
            pace = float(np.mean(list(self.paces.values()))) if self.paces else 1.0
        said = self.constant + sum(self.symbols.get(symbol, self.other) for symbol in text)
        return max(said * pace, _SHORTEST * len(text))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "symbols": dict(self.symbols),
            "other": self.other,
            "constant": self.constant,
            "paces": dict(self.paces),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Durations:
        """Read what ``to_dict`` returned."""
        return cls(
            dict(values["symbols"]), values["other"], values["constant"], dict(values["paces"])
        )


class _Spelt:
    """Texts as numbers of symbols, never all of their counts at once."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.names = sorted({symbol for text in texts for symbol in text})
        places = {name: place for place, name in enumerate(self.names)}
        self.lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self.symbols = np.fromiter(
            (places[symbol] for text in texts for symbol in text),
            dtype=np.int32,
            count=int(self.lengths.sum()),
        )
        self.rows = np.repeat(np.arange(len(texts)), self.lengths)
        self.normal = self._normal()

    def _normal(self) -> np.ndarray[Any, Any]:
        """Normal matrix of rate, constant and symbols, with what keeps it from being singular."""
        width, ends = len(self.names), np.concatenate(([0], np.cumsum(self.lengths)))
        penalty = np.full(2 + width, _PRIOR_COUNT)
        # Rate and constant are free; a little keeps texts of one length from making them arbitrary.
        penalty[0], penalty[1] = 1e-6, 1e-3
        total = np.diag(penalty)
        for start in range(0, len(self.lengths), _CHUNK):
            lengths = self.lengths[start : start + _CHUNK]
            part = slice(ends[start], ends[start + len(lengths)])
            flat = (self.rows[part] - start) * width + self.symbols[part]
            counts = np.bincount(flat, minlength=len(lengths) * width)
            counts = counts.reshape(len(lengths), width)
            design = np.column_stack((lengths, np.ones(len(lengths)), counts))
            total += design.T @ design
        return total

    def sums(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Values of the symbols of each text, added up."""
        return np.bincount(self.rows, values[self.symbols], minlength=len(self.lengths))

    def regression(self, target: np.ndarray[Any, Any]) -> tuple[float, float, np.ndarray[Any, Any]]:
        """Rate of every symbol, constant, and what each symbol lasts beyond the rate."""
        by_symbol = np.bincount(self.symbols, target[self.rows], minlength=len(self.names))
        right = np.concatenate(([self.lengths @ target, target.sum()], by_symbol))
        solved = np.linalg.solve(self.normal, right)
        return float(solved[0]), float(solved[1]), solved[2:]

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
        names = sorted({symbol for text in texts for symbol in text})
        places = {name: place for place, name in enumerate(names)}
        counts = np.zeros((len(texts), len(names)))
        for row, text in enumerate(texts):
            for symbol in text:
                counts[row, places[symbol]] += 1.0
        target = np.asarray(seconds, dtype=np.float64)
        who = sorted({name for name in speakers if name is not None})
        rows = {name: np.array([s == name for s in speakers]) for name in who}
        paces = dict.fromkeys(who, 1.0)
        for _ in range(_ROUNDS if who else 1):
            own = np.array([paces[s] if s is not None else 1.0 for s in speakers])
            rate, constant, apart = _regression(counts, target / own)
            said = counts @ (rate + apart) + constant
            for name in who:
                paces[name] = float(target[rows[name]].sum() / said[rows[name]].sum())
        fitted = {name: float(rate + apart[places[name]]) for name in names}
        return cls(fitted, float(rate), float(constant), paces)

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


def _regression(
    counts: np.ndarray[Any, Any], target: np.ndarray[Any, Any]
) -> tuple[float, float, np.ndarray[Any, Any]]:
    """Rate of every symbol, constant, and what each symbol lasts beyond the rate."""
    design = np.column_stack((counts.sum(1), np.ones(len(counts)), counts))
    penalty = np.full(design.shape[1], _PRIOR_COUNT)
    # Rate and constant are free; a little keeps texts of one length from making them arbitrary.
    penalty[0], penalty[1] = 1e-6, 1e-3
    solved = np.linalg.solve(design.T @ design + np.diag(penalty), design.T @ target)
    return float(solved[0]), float(solved[1]), solved[2:]

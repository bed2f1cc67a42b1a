"""How well a vocabulary covers transcripts, and why not where it does not.

Labels in another case or script than the vocabulary, and a large share of unknown characters, are
the commonest reasons why CTC fine-tuning learns to write nothing. All of them are visible before
the first step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_asr_ctc.tokenizers.vocabulary import script_of, show_counts


@dataclass
class Coverage:
    """Characters of transcripts, counted without white space.

    Attributes:
        characters: all of them.
        unknown: those without a token, with counts.
        texts: transcripts that hold one.
    """

    characters: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    texts: int = 0

    def add(self, text: str, unknown: Iterable[str]) -> None:
        """Count one transcript."""
        self.characters += sum(not c.isspace() for c in text)
        before = self.unknown.total()
        self.unknown.update(c for c in unknown if not c.isspace())
        self.texts += self.unknown.total() > before

    @property
    def share(self) -> float:
        """Unknown characters over all."""
        return self.unknown.total() / self.characters if self.characters else 0.0

    def describe(self) -> str:
        """``12 of 900 characters (1.3 %) have no token: 'q' 7, 'z' 5``."""
        shown = show_counts(dict(self.unknown.most_common()))
        return (
            f"{self.unknown.total()} of {self.characters} characters ({self.share:.1%}, in "
            f"{self.texts} transcripts) have no token: {shown}"
        )


@dataclass(frozen=True, slots=True)
class Cause:
    """Why characters are unknown.

    Attributes:
        name: ``label-case``, ``label-script`` or ``unknown-characters``.
        advice: what was found and what to do.
    """

    name: str
    advice: str


def explain(unknown: Mapping[str, int], tokenizer: CTCTokenizer) -> Cause:
    """Name the cause that accounts for most unknown characters."""
    total = max(1, sum(unknown.values()))
    known = tokenizer.characters
    upper = sum(n for c, n in unknown.items() if c.upper() != c and c.upper() in known)
    lower = sum(n for c, n in unknown.items() if c.lower() != c and c.lower() in known)
    if upper + lower > total / 2:
        case = "upper" if upper >= lower else "lower"
        return Cause(
            "label-case",
            f"the transcripts are in another case than the vocabulary; set data.text_case={case} "
            "(and a text_normalizer that does not undo it: the case is applied last)",
        )
    scripts = Counter[str]()
    for character, count in unknown.items():
        scripts[script_of(character) or ""] += count
    (script, count), *_ = scripts.most_common(1) or [("", 0)]
    own = {script_of(c) for c in known} - {None}
    if script and script not in own and count > total / 2:
        return Cause(
            "label-script",
            f"the transcripts are written in {script}, the vocabulary in "
            f"{', '.join(sorted(str(s) for s in own)) or 'no script'}; build a vocabulary from the "
            "training text (model.tokenizer.kind=characters) or choose a checkpoint of that "
            "language",
        )
    return Cause(
        "unknown-characters",
        "normalise the transcripts (data.text_normalizer=basic, or english where numbers are "
        "written in digits), correct them, or build a vocabulary from the training text "
        "(model.tokenizer.kind=characters)",
    )

"""What decoders return."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alignment:
    """Token ids with the frames they were read from; all tuples have one entry a token.

    Attributes:
        ids: Token ids, blanks removed and repeats merged.
        frames: First frame of each token.
        ends: Frame after the last of each token; frames between two tokens are blank.
        confidence: Mean probability of the token over its frames, in [0, 1].
        score: Log-probability of the whole frame-by-frame path, blanks included.
    """

    ids: tuple[int, ...]
    frames: tuple[int, ...]
    ends: tuple[int, ...]
    confidence: tuple[float, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One result of a beam search.

    Attributes:
        ids: Token ids without blanks.
        score: What the search ranks by: ``ctc_score + lm_score``.
        ctc_score: Log-probability of ``ids``, summed over the alignments that the beam kept.
        lm_score: ``alpha * log P(words) + beta * number of words``; 0 without a language model.
    """

    ids: tuple[int, ...]
    score: float
    ctc_score: float
    lm_score: float = 0.0

"""Prefix beam search in the log domain (Hannun et al. 2014), with an optional language model.

Each prefix keeps two scores, for the alignments that end in a blank and those that do not, so
that every alignment of a prefix counts, not the best one alone. The language model enters as
shallow fusion: ``log P_ctc + alpha * log P_lm + beta * words``, word by word as they close.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import exp, inf, log1p

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_ctc.decoding.fusion import Fusion, LanguageScore, choose_fusion
from voicehub_asr_ctc.decoding.language_model import LanguageModel
from voicehub_asr_ctc.decoding.results import Hypothesis
from voicehub_asr_ctc.decoding.words import TokenTexts


def beam_search(
    log_probs: np.ndarray,
    blank: int = 0,
    beam_size: int = 16,
    lm: LanguageModel | None = None,
    alpha: float = 0.5,
    beta: float = 0.0,
    tokens: Sequence[str] | TokenTexts | None = None,
    *,
    word_delimiter: str = "|",
    token_threshold: float = -7.0,
    beam_threshold: float = 20.0,
) -> list[Hypothesis]:
    """Search for the most probable token sequences.

    Args:
        log_probs: (T, V), log-probabilities of one utterance, valid frames only.
        blank: Id of the blank.
        beam_size: Prefixes kept after each frame.
        lm: Language model over words; needs ``tokens``.
        alpha: Weight of its log-probability.
        beta: Added for each word, against the language model's liking for short texts.
        tokens: Token strings by id, or their roles.
        word_delimiter: See :class:`TokenTexts`.
        token_threshold: Tokens whose log-probability is this far below the frame's best do not
            extend a prefix in that frame. ``-inf`` tries every token.
        beam_threshold: Prefixes further than this below the best are dropped; ``inf``: none are.

    Returns:
        At most ``beam_size`` hypotheses, best first.

    Raises:
        DataError: The input is not (T, V), holds NaN, or is not normalised.
        ConfigurationError: ``beam_size`` is below 1, or ``lm`` is given without ``tokens``.
    """
    scores = _checked(log_probs, blank)
    if beam_size < 1:
        raise ConfigurationError(f"beam_size must be at least 1; got {beam_size}.")
    fusion = choose_fusion(lm, alpha, beta, tokens, word_delimiter, scores.shape[1])
    beam = [_Prefix(None, blank, fusion.start())]
    beam[0].blank_score, beam[0].alive = 0.0, True
    for row in scores:
        tried = np.flatnonzero(row >= row.max() + token_threshold)
        tried = tried[np.argsort(-row[tried], kind="stable")]
        extensions = [(int(c), float(row[c])) for c in tried if c != blank]
        _stay(beam, row, blank)
        reached = [*beam, *_extend(beam, extensions, beam_size, beam_threshold, fusion)]
        beam = _prune(reached, beam_size, beam_threshold)
    return _finish(beam, fusion)


class _Prefix:
    """A node of the tree of prefixes.

    Attributes:
        blank_score, token_score: Log-probability of the alignments that end in a blank, and of
            those that end in ``token``.
        next_blank, next_token: The same after the frame at hand.
        alive: Whether it is in the beam.
    """

    __slots__ = (
        "alive",
        "blank_score",
        "children",
        "language",
        "next_blank",
        "next_token",
        "parent",
        "token",
        "token_score",
    )

    def __init__(self, parent: _Prefix | None, token: int, language: LanguageScore) -> None:
        self.parent, self.token, self.language = parent, token, language
        self.children: dict[int, _Prefix] = {}
        self.blank_score = self.token_score = self.next_blank = self.next_token = -inf
        self.alive = False

    def before(self, token: int) -> float:
        """Log-probability of the alignments that ``token`` may follow as a new token."""
        # The same token again is a new one only after a blank.
        if token == self.token:
            return self.blank_score
        return _log_add(self.blank_score, self.token_score)

    def next_total(self) -> float:
        """What the beam ranks by, after the frame at hand."""
        return _log_add(self.next_blank, self.next_token) + self.language.score

    def ids(self) -> tuple[int, ...]:
        reversed_ids: list[int] = []
        node = self
        while node.parent is not None:
            reversed_ids.append(node.token)
            node = node.parent
        return tuple(reversed(reversed_ids))


def _stay(beam: list[_Prefix], row: np.ndarray, blank: int) -> None:
    """Add the frame's alignments that lead from the beam to prefixes already in it."""
    blank_log_prob = float(row[blank])
    for prefix in beam:
        total = _log_add(prefix.blank_score, prefix.token_score)
        prefix.next_blank = total + blank_log_prob
        parent = prefix.parent
        if parent is not None:
            token_log_prob = float(row[prefix.token])
            prefix.next_token = prefix.token_score + token_log_prob
            if parent.alive:
                grown = parent.before(prefix.token) + token_log_prob
                prefix.next_token = _log_add(prefix.next_token, grown)


def _extend(
    beam: list[_Prefix],
    extensions: list[tuple[int, float]],
    beam_size: int,
    beam_threshold: float,
    fusion: Fusion,
) -> list[_Prefix]:
    """Return prefixes that are one token longer and not in the beam, for :func:`_prune`.

    One that ``beam_size`` others already beat, or that lies below the threshold, cannot survive
    and is not made. ``extensions`` are sorted, the most probable first.
    """
    grown: list[_Prefix] = []
    best = [prefix.next_total() for prefix in beam]
    floor = max(best) - beam_threshold
    heapq.heapify(best)
    for prefix in beam:
        total = _log_add(prefix.blank_score, prefix.token_score)
        language = fusion.best_after(prefix.language) if extensions else 0.0
        for token, log_prob in extensions:
            bound = max(floor, best[0]) if len(best) == beam_size else floor
            if total + log_prob + language < bound:
                break
            child = prefix.children.get(token)
            if child is None:
                child = _Prefix(prefix, token, fusion.extend(prefix.language, token))
                prefix.children[token] = child
            elif child.alive:
                continue
            child.next_blank = -inf
            child.next_token = prefix.before(token) + log_prob
            grown.append(child)
            push = heapq.heappushpop if len(best) == beam_size else heapq.heappush
            push(best, child.next_token + child.language.score)
    return grown


def _prune(reached: list[_Prefix], beam_size: int, beam_threshold: float) -> list[_Prefix]:
    totals = [prefix.next_total() for prefix in reached]
    lowest = max(totals) - beam_threshold
    order = list(range(len(totals)))
    if len(totals) > beam_size:
        # A stable order: of equal scores at the edge, those reached first stay.
        order = sorted(order, key=lambda i: -totals[i])[:beam_size]
    kept = [reached[i] for i in order if totals[i] >= lowest and totals[i] > -inf]
    for prefix in reached:
        prefix.blank_score, prefix.token_score = prefix.next_blank, prefix.next_token
        prefix.alive = False
    for prefix in kept:
        prefix.alive = True
    if not kept:
        raise DataError("The beam is empty: the language model gives every prefix no chance.")
    return kept


def _finish(beam: list[_Prefix], fusion: Fusion) -> list[Hypothesis]:
    results = []
    for prefix in beam:
        ctc = _log_add(prefix.blank_score, prefix.token_score)
        language = fusion.finish(prefix.language)
        results.append(Hypothesis(prefix.ids(), ctc + language, ctc, language))
    return sorted(results, key=lambda hypothesis: (-hypothesis.score, hypothesis.ids))


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -inf else a + log1p(exp(b - a))


def _checked(log_probs: np.ndarray, blank: int) -> np.ndarray:
    scores = np.asarray(log_probs, dtype=np.float64)
    if scores.ndim != 2:
        raise DataError(f"beam_search expects log_probs (T, V); got shape {scores.shape}.")
    if not 0 <= blank < scores.shape[1]:
        raise DataError(f"The blank id {blank} lies outside the {scores.shape[1]} outputs.")
    if np.isnan(scores).any():
        raise DataError("beam_search got NaN log-probabilities.")
    totals = np.exp(scores).sum(-1)
    if len(totals) and np.abs(totals - 1).max() > 1e-2:
        worst = int(np.abs(totals - 1).argmax())
        raise DataError(
            f"The probabilities of frame {worst} sum to {totals[worst]:.3g}, not 1: beam_search "
            "takes log-probabilities; apply log_softmax to logits first."
        )
    return scores

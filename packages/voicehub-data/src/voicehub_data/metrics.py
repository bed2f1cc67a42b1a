"""Word and character error rates (jiwer) over a stated normaliser, and word alignments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from voicehub.errors import DataError
from voicehub_data.text import TextNormalizer, get_normalizer

if TYPE_CHECKING:
    from voicehub.models.results import PredictionRow
    from voicehub_data.manifest import ManifestRow

AlignmentOp = Literal["equal", "substitute", "delete", "insert"]
AlignedWord = tuple[AlignmentOp, str, str]


@dataclass(frozen=True, slots=True)
class WerCounts:
    """Edits between references and hypotheses; add two of them to pool corpora.

    Attributes:
        substitutions, deletions, insertions, hits: numbers of units (words, or characters).
        normalizer: name of the normaliser both sides went through; part of the figure.
        unit: ``"word"`` or ``"character"``.
    """

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    hits: int = 0
    normalizer: str = "none"
    unit: str = "word"

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def words(self) -> int:
        """Units in the references: hits + substitutions + deletions."""
        return self.hits + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        """Errors over reference units; NaN where the references hold none."""
        return self.errors / self.words if self.words else math.nan

    def __add__(self, other: WerCounts) -> WerCounts:
        if (self.normalizer, self.unit) != (other.normalizer, other.unit):
            raise DataError(
                f"error counts over {self.unit}s with normaliser {self.normalizer!r} and over "
                f"{other.unit}s with {other.normalizer!r} cannot be added."
            )
        return WerCounts(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.hits + other.hits,
            self.normalizer,
            self.unit,
        )


def word_error_rate(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    normalizer: str | TextNormalizer = "basic",
) -> WerCounts:
    """Corpus word error counts; ``.rate`` is total errors over total reference words.

    Args:
        references, hypotheses: paired texts.
        normalizer: preset name or normaliser, applied to both sides.

    Raises:
        DataError: the lists differ in length or are empty.
    """
    import jiwer

    normalize = get_normalizer(normalizer)
    pairs = _normalized(references, hypotheses, normalize)
    # Rows without reference words would stop jiwer; all that their hypothesis holds is inserted.
    full = [(ref, hyp) for ref, hyp in pairs if ref.split()]
    insertions = sum(len(hyp.split()) for ref, hyp in pairs if not ref.split())
    if not full:
        return WerCounts(insertions=insertions, normalizer=normalize.name)
    out = jiwer.process_words([ref for ref, _ in full], [hyp for _, hyp in full])
    return WerCounts(
        out.substitutions, out.deletions, out.insertions + insertions, out.hits, normalize.name
    )


def character_error_rate(
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    normalizer: str | TextNormalizer = "basic",
) -> WerCounts:
    """Corpus character error counts, single spaces between words counted as characters.

    Raises:
        DataError: the lists differ in length or are empty.
    """
    import jiwer

    normalize = get_normalizer(normalizer)
    pairs = [
        (" ".join(ref.split()), " ".join(hyp.split()))
        for ref, hyp in _normalized(references, hypotheses, normalize)
    ]
    full = [(ref, hyp) for ref, hyp in pairs if ref]
    insertions = sum(len(hyp) for ref, hyp in pairs if not ref)
    if not full:
        return WerCounts(insertions=insertions, normalizer=normalize.name, unit="character")
    out = jiwer.process_characters([ref for ref, _ in full], [hyp for _, hyp in full])
    return WerCounts(
        out.substitutions,
        out.deletions,
        out.insertions + insertions,
        out.hits,
        normalize.name,
        "character",
    )


def align_words(
    reference: str, hypothesis: str, *, normalizer: str | TextNormalizer = "none"
) -> list[AlignedWord]:
    """Minimum-edit alignment of two texts, word by word, for marking errors.

    Returns:
        ``(op, reference word, hypothesis word)``; the side that has no word holds ``""``:
        ``delete`` has no hypothesis word, ``insert`` no reference word.
    """
    import jiwer

    normalize = get_normalizer(normalizer)
    ref, hyp = normalize(reference).split(), normalize(hypothesis).split()
    if not ref:
        return [("insert", "", word) for word in hyp]
    chunks = jiwer.process_words(" ".join(ref), " ".join(hyp)).alignments[0]
    aligned: list[AlignedWord] = []
    for chunk in chunks:
        left = ref[chunk.ref_start_idx : chunk.ref_end_idx]
        right = hyp[chunk.hyp_start_idx : chunk.hyp_end_idx]
        if chunk.type == "insert":
            aligned += [("insert", "", word) for word in right]
        elif chunk.type == "delete":
            aligned += [("delete", word, "") for word in left]
        else:
            op: AlignmentOp = "equal" if chunk.type == "equal" else "substitute"
            aligned += [(op, a, b) for a, b in zip(left, right, strict=True)]
    return aligned


def prediction_row(
    row: ManifestRow, hypothesis: str, *, normalizer: str | TextNormalizer
) -> PredictionRow:
    """What a report shows of a recognised row: both texts normalised, word errors counted."""
    from voicehub.models.results import PredictionRow

    normalize = get_normalizer(normalizer)
    counts = word_error_rate([row.text], [hypothesis], normalizer=normalize)
    return PredictionRow(
        id=row.id,
        reference=normalize(row.text),
        hypothesis=normalize(hypothesis),
        errors=counts.errors,
        words=counts.words,
        audio_filepath=str(row.audio_filepath),
        offset=row.offset,
        duration=row.duration,
    )


def _normalized(
    references: Sequence[str], hypotheses: Sequence[str], normalize: TextNormalizer
) -> list[tuple[str, str]]:
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise DataError("give lists of references and hypotheses, not single texts.")
    if len(references) != len(hypotheses):
        raise DataError(
            f"{len(references)} references and {len(hypotheses)} hypotheses; expected one "
            "hypothesis for each reference: count a failure apart, never leave its row out."
        )
    if not references:
        raise DataError("no references: an error rate needs at least one row.")
    return [
        (normalize(ref), normalize(hyp)) for ref, hyp in zip(references, hypotheses, strict=True)
    ]

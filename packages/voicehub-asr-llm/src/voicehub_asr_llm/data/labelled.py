"""Labels of a split, and what of it the decoder cannot spell or the encoder cannot see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_asr_llm.decoders.chat import ChatFormat, Kind
from voicehub_asr_llm.encoders.base import FrontEnd
from voicehub_asr_llm.projectors.base import projected_lengths
from voicehub_data.manifest import ManifestRow

Labels = tuple[int, ...]


@dataclass(frozen=True)
class LabelledRows:
    """Rows that a data set can be made of.

    Attributes:
        rows, labels, prompts: in one order.
        kept: where they were among the rows that were given.
        dropped: rows left out, by reason.
        notes: what to say of them.
    """

    rows: list[ManifestRow]
    labels: list[Labels]
    prompts: list[Kind]
    kept: list[int]
    dropped: dict[str, int]
    notes: list[str]

    def added_to(self, report: SplitReport) -> SplitReport:
        """The report of the split, with what was dropped here."""
        return replace(
            report,
            kept=len(self.rows),
            dropped={**report.dropped, **self.dropped},
            seconds=sum(row.duration or 0.0 for row in self.rows),
            notes=[*report.notes, *self.notes],
        )


class Labeller:
    """Encodes transcripts.

    Args:
        chat: of the decoder.
        front_end: of the encoder.
        stride: of the projector.
        max_tokens: longest conversation.
        stretch: factor by which augmentation may lengthen audio.
    """

    def __init__(
        self,
        chat: ChatFormat,
        front_end: FrontEnd,
        stride: int,
        max_tokens: int,
        stretch: float = 1.0,
    ) -> None:
        self.chat, self.front_end, self.stride = chat, front_end, stride
        self.max_tokens, self.stretch = max_tokens, stretch

    def problem(self, row: ManifestRow, labels: Labels, said: str) -> tuple[str, str]:
        """Why a row cannot be trained on, in a word and in full; empty where it can."""
        if said:
            return "unspellable", said
        samples = int((row.duration or 0.0) * self.stretch * self.front_end.sample_rate)
        limit = self.front_end.maximum_samples
        if limit is not None and samples > limit:
            seconds = limit / self.front_end.sample_rate
            return "too-long-for-encoder", f"{row.duration:.1f} s; the encoder sees {seconds:g} s"
        outputs = projected_lengths(self.front_end.frames(samples), self.stride)
        tokens = self.chat.longest_prompt + outputs + len(labels)
        if tokens > self.max_tokens:
            return "too-many-tokens", f"{tokens} tokens, over data.max_tokens {self.max_tokens}"
        return "", ""


def label_rows(
    name: str,
    rows: Sequence[ManifestRow],
    texts: Sequence[str],
    prompts: Sequence[Kind],
    labeller: Labeller,
    *,
    training: bool,
    max_drop_fraction: float,
) -> LabelledRows:
    """Encode the transcripts of a split and sort out rows that cannot be used.

    Evaluation rows are left out where the encoder cannot see them whole, of the evaluation loss
    alone; spelling that comes back otherwise is kept there.

    Args:
        name: of the split, for messages.
        rows, texts, prompts: in one order; ``texts`` are what is learnt.
        labeller: encodes.
        training: a training split.
        max_drop_fraction: stop when more than this share would go.

    Raises:
        DataError: too many rows cannot be used, or none can.
    """
    kept: list[int] = []
    labels: list[Labels] = []
    dropped: Counter[str] = Counter()
    first: dict[str, str] = {}
    for place, (row, text) in enumerate(zip(rows, texts, strict=True)):
        encoded = labeller.chat.encode(text)
        said = encoded.problem if training else ""
        reason, detail = labeller.problem(row, encoded.ids, said)
        if reason:
            dropped[reason] += 1
            first.setdefault(reason, f"{row.location}: {text!r}: {detail}")
            continue
        kept.append(place)
        labels.append(encoded.ids)
    notes = [
        f"dropped: {first[reason]}" + (f", and {count - 1:,} more" if count > 1 else "")
        for reason, count in dropped.items()
    ]
    if not kept or dropped.total() > max_drop_fraction * len(rows):
        shown = "\n".join(f"  {note}" for note in notes)
        raise DataError(
            f"split {name!r}: {dropped.total()} of {len(rows)} rows cannot be used with this "
            f"encoder and decoder ({dict(dropped)}), over data.max_drop_fraction "
            f"{max_drop_fraction:g}.\n{shown}\nTake a decoder whose tokenizer spells these texts, "
            "or other limits (data.max_seconds, data.max_tokens)."
        )
    used = [replace(rows[place], text=texts[place]) for place in kept]
    return LabelledRows(
        used, labels, [prompts[place] for place in kept], kept, dict(dropped), notes
    )

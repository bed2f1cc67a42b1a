"""Training data without the rows that the model cannot use."""

from __future__ import annotations

from dataclasses import replace

from voicehub.errors import DataError
from voicehub_asr_llm.data.labelled import LabelledRows
from voicehub_asr_llm.data.sources import TrainingData


def keep_rows(training: TrainingData, labelled: LabelledRows) -> TrainingData:
    """Return the training data that is left, each source with what was dropped of it.

    Ids, which evaluations are checked against, stay those of all rows.

    Raises:
        DataError: nothing is left of a source.
    """
    if not labelled.dropped:
        return training
    kept = set(labelled.kept)
    sources = []
    for source, members in zip(training.sources, training.members, strict=True):
        left = [place - members.start for place in members if place in kept]
        rows = [source.rows[place] for place in left]
        lost = len(members) - len(left)
        if not rows:
            shown = "\n".join(f"  {note}" for note in labelled.notes)
            raise DataError(
                f"training source {source.name!r}: this encoder and decoder can use none of its "
                f"{lost} rows. Take it out of data.train, or another model.\n{shown}"
            )
        report = source.report
        if lost:
            report = replace(
                report,
                kept=len(rows),
                dropped={**report.dropped, "unusable-by-model": lost},
                seconds=sum(row.duration or 0.0 for row in rows),
            )
        sources.append(replace(source, rows=rows, report=report))
    sources[0].report.notes.extend(labelled.notes)
    return replace(
        training,
        sources=sources,
        rows=labelled.rows,
        row_punctuated=[training.row_punctuated[place] for place in labelled.kept],
    )

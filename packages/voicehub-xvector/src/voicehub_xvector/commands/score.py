"""``voicehub score``: score a list of trials, and judge it where it is labelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub.cli.tables import table
from voicehub.errors import DataError

if TYPE_CHECKING:
    from voicehub_xvector.embeddings import EmbeddingTable
    from voicehub_xvector.metrics import Verification
    from voicehub_xvector.scoring import Backend

app = typer.Typer()


@app.command()
def score(
    trials: Annotated[
        Path, typer.Argument(metavar="TRIALS", help="'1 a.wav b.wav' or 'a.wav b.wav' a line.")
    ],
    embeddings: Annotated[
        Path, typer.Argument(metavar="EMBEDDINGS", help="A file or directory of embeddings.")
    ],
    scores: Annotated[
        Path | None, typer.Option(help="Write 'left right score' a line here.")
    ] = None,
    backend: Annotated[str, typer.Option(help="cosine or plda.")] = "cosine",
    train: Annotated[
        Path | None,
        typer.Option(help="Embeddings of other speakers: their mean is taken off; PLDA learns."),
    ] = None,
    cohort: Annotated[
        Path | None, typer.Option(help="Embeddings of other speakers for AS-norm.")
    ] = None,
    top: Annotated[int, typer.Option(min=2, help="Highest cohort scores that count.")] = 300,
    det: Annotated[
        Path | None, typer.Option(help="Draw the DET curve here, as SVG (labelled trials).")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Score TRIALS, whose recordings are found among EMBEDDINGS by id or by path.

    A labelled list is judged: equal error rate on the convex hull, and minimal detection costs
    normalised by min(p, 1 - p).
    """
    from voicehub_xvector.embeddings import read_embeddings
    from voicehub_xvector.scoring import read_trials, score_trials

    held = read_embeddings(embeddings)
    training = None if train is None else _of_one_size(held, embeddings, train, "--train")
    scored = score_trials(
        read_trials(trials),
        held,
        _backend(backend, training),
        cohort=None if cohort is None else _of_one_size(held, embeddings, cohort, "--cohort"),
        top=top,
        source=embeddings,
    )
    judged = scored.verification()
    if scores is not None:
        scored.write(scores)
    if det is not None:
        _draw(judged, det, trials)
    written = [path for path in (scores, det) if path is not None]
    result = {
        "trials": len(scored.trials),
        "backend": backend,
        "metrics": judged and judged.metrics(),
        "files": written,
    }
    text = [f"{len(scored.trials):,} trials scored", *_figures(judged)]
    text += [f"wrote {path}" for path in written]
    finish(result, json_mode=json_, human="\n".join(text))


def _of_one_size(held: EmbeddingTable, embeddings: Path, path: Path, option: str) -> EmbeddingTable:
    """Embeddings that can be compared with those of the trials.

    Raises:
        DataError: they have another size.
    """
    from voicehub_xvector.embeddings import read_embeddings

    others = read_embeddings(path)
    sizes = others.vectors.shape[1], held.vectors.shape[1]
    if sizes[0] != sizes[1]:
        raise DataError(
            f"{option}: {path} holds embeddings of {sizes[0]} values, {embeddings} of {sizes[1]}: "
            "they are of different models. Extract both with one."
        )
    return others


def _backend(name: str, training: EmbeddingTable | None) -> Backend:
    from voicehub_xvector.scoring import Cosine, PldaBackend

    if name == "cosine":
        return Cosine(None if training is None else training.vectors.mean(axis=0))
    if name != "plda":
        raise UsageError(f"--backend is cosine or plda, not {name!r}.")
    if training is None:
        raise UsageError("--backend plda needs --train: embeddings with the names of speakers.")
    if not all(training.speakers):
        raise UsageError(
            "--train: an embedding without a speaker. `voicehub extract` keeps the names that the "
            "manifest has, in every format but ark,scp."
        )
    return PldaBackend.fit(training.vectors, training.speakers)


def _draw(judged: Verification | None, path: Path, trials: Path) -> None:
    from voicehub_data.files import write_file
    from voicehub_xvector.metrics.det import det_svg

    if judged is None:
        raise UsageError(f"--det needs labels, and {trials} has none.")
    write_file(path, det_svg(judged.points).encode())


def _figures(judged: Verification | None) -> list[str]:
    if judged is None:
        return []
    points = judged.points
    rows = [("EER", f"{100 * judged.eer:.2f} %")]
    rows += [(f"minDCF, p = {prior:g}", f"{cost:.4f}") for prior, cost in judged.min_dcf.items()]
    counts = f"{points.targets:,} of the same speaker, {points.nontargets:,} of different ones"
    return [counts, "", table(("metric", "value"), rows)]

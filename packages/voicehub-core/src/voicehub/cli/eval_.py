"""``voicehub eval``: measure a model on a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import DeviceOption, JsonOption, require_folder
from voicehub.cli.output import UsageError, finish, jsonable, say
from voicehub.cli.tables import table
from voicehub.errors import ConfigurationError

if TYPE_CHECKING:
    from voicehub.models.lifecycle import PreTrainedRecognitionModel, PreTrainedSpeakerModel
    from voicehub.models.results import EvaluationReport


def evaluate(
    model_dir: Annotated[
        str, typer.Argument(metavar="MODEL", help="A trained model: its directory or its run.")
    ],
    data: Annotated[str, typer.Option("--data", help="The manifest to measure on.")],
    batch_size: Annotated[int, typer.Option(min=1)] = 8,
    max_samples: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy decoding.")] = 1,
    predictions: Annotated[
        Path | None, typer.Option(help="Write reference and hypothesis of each row here (JSONL).")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Print the N rows with most errors.")] = 5,
    trials: Annotated[
        Path | None,
        typer.Option(help="Speakers: score these trials (VoxCeleb format) and not all pairs."),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Write pictures, such as a DET curve, to this folder.")
    ] = None,
    allow_seen: Annotated[
        bool,
        typer.Option("--allow-seen", help="Also measure on rows that the model was trained on."),
    ] = False,
    model_type: Annotated[
        str | None, typer.Option(help="Needed where the directory does not say it itself.")
    ] = None,
    device: DeviceOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Measure a model on a manifest: a recogniser's error rates and worst rows, or a speaker
    embedder's equal error rate and detection costs."""
    from voicehub.cli.recognisers import load_measurable

    if predictions is not None:
        _check_writable(predictions)
    if pictures is not None:
        require_folder("--pictures", pictures)
    model = load_measurable(model_dir, model_type=model_type, device=device)
    options = _options_of(model, beam_size=beam_size, trials=trials, allow_seen=allow_seen)
    try:
        report = model.evaluate(data, batch_size=batch_size, max_samples=max_samples, **options)
    except ConfigurationError as error:
        if allow_seen and "'allow_seen'" in str(error):  # the model does not know this option
            raise UsageError(
                f"--allow-seen: '{model.model_type}' keeps no list of the rows that it was trained "
                "on, so it refuses none: leave it out."
            ) from None
        raise
    if predictions is not None:
        _write_rows(predictions, report)
        say(f"wrote {len(report.rows)} rows to {predictions}", json_mode=json_)
    if pictures is not None:
        _write_pictures(pictures, report, json_mode=json_)
    result = {
        "model": model_dir,
        "data": data,
        "samples": report.measured,
        "metrics": report.metrics,
        "dropped": report.dropped,
        "tables": report.tables,
        "notes": report.notes,
    }
    finish(result, json_mode=json_, human=_text(report, show))


def _options_of(
    model: PreTrainedRecognitionModel | PreTrainedSpeakerModel,
    *,
    beam_size: int,
    trials: Path | None,
    allow_seen: bool,
) -> dict[str, Any]:
    """The options that were given, for the task that they are of.

    Raises:
        UsageError: one is of another task than the model.
    """
    from voicehub.models.lifecycle import PreTrainedSpeakerModel

    speakers = isinstance(model, PreTrainedSpeakerModel)
    if trials is not None and not speakers:
        raise UsageError(
            f"--trials is for speaker embedders, and '{model.model_type}' recognises speech: leave "
            "it out."
        )
    for option, given in (("--beam-size", beam_size > 1), ("--allow-seen", allow_seen)):
        if given and speakers:
            raise UsageError(
                f"{option} is for recognisers, and '{model.model_type}' embeds speakers: leave it "
                "out."
            )
    # Greedy is every recogniser's default; only a wider beam is passed on.
    options: dict[str, Any] = {"beam_size": beam_size} if beam_size > 1 else {}
    if trials is not None:
        options["trials"] = trials
    if allow_seen:
        options["allow_seen"] = True
    return options


def _check_writable(path: Path) -> None:
    """Find out before the evaluation, which takes long, that its rows could not be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UsageError(
            f"--predictions {path} cannot be written: {error.strerror or error}."
        ) from None


def _write_rows(path: Path, report: EvaluationReport) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(jsonable(row.to_dict()), ensure_ascii=False) for row in report.rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_pictures(folder: Path, report: EvaluationReport, *, json_mode: bool) -> None:
    for name, content in report.pictures.items():
        path = folder / f"{name}.png"
        path.write_bytes(content)
        say(f"wrote {path}", json_mode=json_mode)


def _text(report: EvaluationReport, show: int) -> str:
    from voicehub.reporting import figures

    rows = [
        (figures.label_of(key), figures.number(key, value)) for key, value in report.metrics.items()
    ]
    lines = [table(("metric", "value"), rows)]
    dropped = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
    lines.append(f"\n{report.measured:,} rows measured; dropped: {dropped or 'none'}")
    lines += [f"  {note}" for note in report.notes]
    for title, figures_of in report.tables.items():
        lines += ["", f"{title}:", _table(figures_of)]
    worst = sorted((row for row in report.rows if row.errors), key=lambda row: -row.errors)[:show]
    if worst:
        cells = [(row.errors, row.id, row.reference, row.hypothesis) for row in worst]
        lines += ["", table(("errors", "id", "reference", "recognised"), cells)]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    from voicehub.reporting import figures

    # A figure that some rows lack, such as a rate over no words, is an empty cell.
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[figures.number(key, row[key]) if key in row else "" for key in keys] for row in rows]
    return table([figures.label_of(key) for key in keys], cells)

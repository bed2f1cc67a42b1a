"""The report of a run: one HTML file with its pictures and sounds inside, nothing fetched.

Every text that comes from data or configuration is escaped here, at the place where it becomes
HTML; helpers that return HTML are named ``*_html`` or return it from ``charts``.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.reporting import figures
from voicehub.reporting.alignment import AlignedWord, align_words
from voicehub.reporting.charts import Series, line_chart
from voicehub.reporting.figure_notes import notes_html
from voicehub.reporting.media_files import media_html
from voicehub.reporting.page_style import STYLE
from voicehub.reporting.samples import SampleSheet, cards_html
from voicehub.reporting.summary import RunSummary, alerts_in

if TYPE_CHECKING:
    from voicehub.adapters.experiment import FigureNote, SplitReport
    from voicehub.models.results import PredictionRow

REPORT_FILE = "report.html"
MAX_AUDIO_BYTES = 2 * 2**20  # of one clip; a longer one is linked, not embedded
AudioBytes = Callable[["PredictionRow"], "bytes | None"]

# A page opened from disk must not reach out, whatever a manifest's text contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; media-src data: file:; img-src data:"


@dataclass(frozen=True)
class RunReport:
    """What the report shows; only ``summary`` is required.

    ``rows`` are those of ``metrics.jsonl``. ``audio_bytes`` gives a clip's WAV bytes, or None to
    have the file linked instead. ``routes`` are the rows of the table of what trained;
    ``figure_notes`` what the family's figures mean; ``media`` the files of the last evaluation;
    ``sheets`` what the finished model made of the fixed prompts; ``weights`` those that the
    predictions are of, in a run that has two kinds.
    """

    summary: RunSummary
    rows: Sequence[Mapping[str, Any]] = ()
    data: Sequence[SplitReport] = ()
    routes: Sequence[Mapping[str, Any]] = ()
    predictions: Sequence[PredictionRow] = ()
    configuration: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    audio_bytes: AudioBytes | None = None
    figure_notes: Sequence[FigureNote] = ()
    media: Sequence[Path] = ()
    sheets: Sequence[SampleSheet] = ()
    weights: str | None = None


def write_report(path: Path, report: RunReport) -> None:
    """Write the page in one step: a reader never sees half of one."""
    page = render_report(report)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)


def render_report(report: RunReport) -> str:
    """The whole page."""
    summary = report.summary
    title = escape(f"{summary.name} · {summary.model_type}")
    sections = [
        _header_html(summary),
        _tiles_html(summary),
        _warnings_html([*summary.failures, *summary.warnings, *alerts_in(report.rows)]),
        *(_section_html(f"Samples: {sheet.title}", cards_html(sheet)) for sheet in report.sheets),
        _section_html("What the figures mean", notes_html(report.figure_notes, report.rows)),
        _section_html("Curves", _curves_html(report.rows)),
        _section_html("Listen and look", media_html(report.media)),
        _section_html(_samples_title(report), _samples_html(report)),
        _section_html("Data", _data_html(report.data)),
        _section_html("What trained", _routes_html(report.routes)),
        _section_html("Configuration", _configuration_html(report)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def _header_html(summary: RunSummary) -> str:
    line = f"{summary.family} / {summary.model_type} · {summary.steps:,} steps on {summary.device}"
    where = f" · {summary.run_directory}" if summary.run_directory else ""
    if summary.averaged_model_directory is not None:
        where += f" · {_models_text(summary)}"
    if summary.averages is not None:
        where += f" · {summary.averages_text()}"
    return f"<header><h1>{escape(summary.name)}</h1><p>{escape(line + where)}</p></header>"


def _models_text(summary: RunSummary) -> str:
    raw, averaged = summary.model_directory, summary.averaged_model_directory
    names = [(raw, "raw"), (averaged, "ema")]
    return ", ".join(f"{path.name}: {figures.WEIGHTS[w]}" for path, w in names if path is not None)


def _tiles_html(summary: RunSummary) -> str:
    tiles = [
        (summary.label_of(key), figures.number(key, value))
        for key, value in summary.metrics.items()
    ]
    if summary.training_loss is not None:
        tiles.append(("training loss", figures.number("loss", summary.training_loss)))
    tiles.append(("time training", figures.clock(summary.seconds)))
    cells = "".join(
        f'<div class="tile"><span>{escape(label)}</span><b>{escape(value)}</b></div>'
        for label, value in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _warnings_html(warnings: Sequence[str]) -> str:
    return "".join(
        f'<p class="warning">{escape(text)}</p>' for text in dict.fromkeys(warnings) if text
    )


def _section_html(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


# -- curves -------------------------------------------------------------------------------


def _curves_html(rows: Sequence[Mapping[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    weights = figures.weights_of(rows)
    losses = [key for key in keys if key == "loss" or key.startswith("loss/")]
    evaluation = [
        key for key in keys if key in figures.evaluation_metrics(dict.fromkeys(keys, 0.0))
    ]
    losses += [key for key in evaluation if key.endswith("_loss")]
    errors = [key for key in evaluation if figures.is_error_rate(key)]
    others = [key for key in evaluation if key not in losses and key not in errors]
    rates = [key for key in keys if key.startswith("learning_rate")]
    charts = [
        line_chart("Loss", _series(rows, losses)),
        line_chart("Error rate", _series(rows, errors), percent=True),
        *(line_chart(_curve_label(key, weights.get(key)), _series(rows, [key])) for key in others),
        line_chart("Learning rate", _series(rows, rates)),
        line_chart("Gradient norm", _series(rows, ["grad_norm"])),
        line_chart("Seconds of audio per second", _series(rows, ["audio_per_second"])),
        line_chart(
            "Time waiting for data, padding waste",
            _series(rows, ["data_wait", "padding_waste"]),
            percent=True,
        ),
    ]
    drawn = "".join(charts)
    return f'<div class="charts">{drawn}</div>' if drawn else ""


def _series(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[Series]:
    found = []
    weights = figures.weights_of(rows)
    for key in keys:
        points = [
            (float(row.get("step", 0)), float(row[key]))
            for row in rows
            if isinstance(row.get(key), (int, float))
        ]
        found.append(Series(_curve_label(key, weights.get(key)), points))
    return found


def _curve_label(key: str, weights: str | None = None) -> str:
    """In a chart of evaluation metrics "eval" says nothing; beside the training loss it does."""
    if key.partition("/")[0] == "loss":
        return f"training {figures.label_of(key)}"
    label = figures.label_of(key, weights)
    return label if key.endswith("_loss") else label.removeprefix("eval ")


# -- samples ------------------------------------------------------------------------------


def _samples_title(report: RunReport) -> str:
    return f"Samples ({figures.WEIGHTS[report.weights]})" if report.weights else "Samples"


def _samples_html(report: RunReport) -> str:
    if not report.predictions:
        return ""
    body = "".join(_sample_html(row, report) for row in report.predictions)
    key = (
        '<p class="soft">Marked: <mark class="sub">wrong word</mark> '
        '<mark class="del">missing word</mark> <mark class="ins">added word</mark></p>'
    )
    return f'{key}<div class="card">{body}</div>'


def _sample_html(row: PredictionRow, report: RunReport) -> str:
    words = align_words(row.reference, row.hypothesis)
    errors = sum(word.operation != "equal" for word in words)
    text = "all right" if errors == 0 else f"{errors} error{'s' if errors > 1 else ''}"
    badge = f'<span class="badge {"bad" if errors else "good"}">{text}</span>'
    top = f'<div class="top">{badge}<span>{escape(row.id)}</span>{_audio_html(row, report)}</div>'
    hypothesis = _marked_html(words, "hypothesis") or '<span class="soft">(nothing)</span>'
    return (
        f'<div class="sample">{top}<dl class="words">'
        f"<dt>reference</dt><dd>{_marked_html(words, 'reference')}</dd>"
        f"<dt>recognised</dt><dd>{hypothesis}</dd></dl></div>"
    )


def _marked_html(words: Sequence[AlignedWord], side: str) -> str:
    styles = {"substitute": "sub", "delete": "del", "insert": "ins"}
    shown = []
    for word in words:
        text = word.reference if side == "reference" else word.hypothesis
        if text is None:
            continue
        style = styles.get(word.operation)
        marked = f'<mark class="{style}">{escape(text)}</mark>' if style else escape(text)
        shown.append(marked)
    return " ".join(shown)


def _audio_html(row: PredictionRow, report: RunReport) -> str:
    content = report.audio_bytes(row) if report.audio_bytes else None
    if content and len(content) <= MAX_AUDIO_BYTES:
        data = base64.b64encode(content).decode("ascii")
        return f'<audio controls preload="none" src="data:audio/wav;base64,{data}"></audio>'
    if not row.audio_filepath:
        return ""
    path = Path(row.audio_filepath)
    target = path.resolve().as_uri()
    return f'<a href="{escape(target, quote=True)}">{escape(path.name)}</a>'


# -- tables -------------------------------------------------------------------------------


def _data_html(splits: Sequence[SplitReport]) -> str:
    if not splits:
        return ""
    rows = []
    for split in splits:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in split.dropped.items())
        rows.append(
            (
                split.split,
                f"{split.total:,}",
                f"{split.kept:,}",
                dropped or "none",
                f"{split.seconds / 60:.1f} min",
                "; ".join(split.notes),
            )
        )
    headers = ("split", "rows", "kept", "dropped", "audio", "notes")
    return _table_html(headers, rows, numeric={1, 2, 4})


def _routes_html(routes: Sequence[Mapping[str, Any]]) -> str:
    if not routes:
        return ""
    names = tuple(routes[0])
    rows = [tuple(_cell(route.get(name)) for name in names) for route in routes]
    numeric = {
        index for index, name in enumerate(names) if isinstance(routes[0][name], (int, float))
    }
    return _table_html([name.replace("_", " ") for name in names], rows, numeric)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _table_html(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: set[int]) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        opened = {True: f'<{tag} class="number">', False: f"<{tag}>"}
        return "".join(
            f"{opened[index in numeric]}{escape(value)}</{tag}>"
            for index, value in enumerate(values)
        )

    head = f"<tr>{cells('th', headers)}</tr>"
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="card"><table>{head}{body}</table></div>'


def _configuration_html(report: RunReport) -> str:
    parts = []
    if report.configuration:
        parts.append(_details_html("The resolved configuration", report.configuration))
    if report.record:
        record = json.dumps(report.record, indent=2, default=str, ensure_ascii=False)
        parts.append(_details_html("The record: versions, data, source", record))
    return f'<div class="card">{"".join(parts)}</div>' if parts else ""


def _details_html(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"

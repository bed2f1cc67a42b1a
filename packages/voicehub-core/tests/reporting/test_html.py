"""The HTML report: well-formed, self-contained, escaped, with marked errors and playable audio."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from voicehub.adapters.experiment import SplitReport
from voicehub.models.results import PredictionRow
from voicehub.reporting.charts import Series, line_chart
from voicehub.reporting.html import MAX_AUDIO_BYTES, RunReport, render_report, write_report
from voicehub.reporting.summary import RunSummary

VOID = {"meta", "link", "br", "img", "input", "hr"}
EVIL = "<script>alert('x')</script>\"&<img src=http://evil.example/x>"


class Page(HTMLParser):
    """Checks that tags close in order, and collects what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.marks: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)
        if self.open and self.open[-1] == "mark":
            self.marks.append((str(self.tags[-1][1]["class"]), data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for step in range(10, 310, 10):
        found.append({"step": step, "loss": 30 / step, "learning_rate": 1e-3, "grad_norm": 1.0})
        if step % 100 == 0:
            found.append({"step": step, "eval_wer": 10 / step, "eval_loss": 9 / step})
    return found


def report(**changes: Any) -> RunReport:
    summary = RunSummary(
        name="run",
        family="toy",
        model_type="toy-line",
        device="cpu",
        steps=300,
        seconds=61.0,
        training_loss=0.25,
        metrics={"eval_wer": 0.125},
    )
    values: dict[str, Any] = {
        "summary": summary,
        "rows": rows(),
        "data": [SplitReport("train", 12, 10, {"too long": 2}, 90.0, ["8 kHz"])],
        "routes": [{"route": "default", "tensors": 2, "learning_rate": 0.001}],
        "predictions": [
            PredictionRow("u1", "one two three", "one too three four", 2, 3, "/x/u1.wav")
        ],
        "configuration": "training:\n  seed: 1\n",
        "record": {"packages": {"voicehub-core": "0.1.0"}},
    }
    return RunReport(**{**values, **changes})


def test_the_page_holds_everything_and_is_well_formed() -> None:
    page = Page(render_report(report()))
    text = " ".join(page.text)
    for part in ("12.5 %", "01:01", "too long", "8 kHz", "1.5 min", "default", "seed: 1", "0.1.0"):
        assert part in text
    assert len(page.named("svg")) == 4  # loss, error rate, learning rate, gradient norm
    assert len(page.named("polyline")) == 5  # training and evaluation loss share a chart


def test_errors_are_marked_in_both_lines() -> None:
    page = Page(render_report(report()))
    marks = [
        mark for mark in page.marks if mark[1] not in ("wrong word", "missing word", "added word")
    ]
    assert marks == [("sub", "two"), ("sub", "too"), ("ins", "four")]
    assert "2 errors" in " ".join(page.text)


def test_audio_is_embedded_or_linked() -> None:
    sound = b"RIFF....WAVE"
    page = Page(render_report(report(audio_bytes=lambda row: sound)))
    (audio,) = page.named("audio")
    source = str(audio["src"])
    assert source.startswith("data:audio/wav;base64,")
    assert base64.b64decode(source.split(",", 1)[1]) == sound
    for other in (None, lambda row: None, lambda row: bytes(MAX_AUDIO_BYTES + 1)):
        page = Page(render_report(report(audio_bytes=other)))
        assert page.named("audio") == []
        assert [link["href"] for link in page.named("a")] == ["file:///x/u1.wav"]


def test_a_row_without_a_file_has_neither() -> None:
    row = PredictionRow("u", "a", "a", 0, 1)
    page = Page(render_report(report(predictions=[row])))
    assert page.named("a") == [] and "all right" in " ".join(page.text)


def test_nothing_is_fetched_from_anywhere() -> None:
    page = Page(render_report(report(audio_bytes=lambda row: b"x")))
    assert page.named("script") == [] and page.named("link") == [] and page.named("img") == []
    targets = [
        str(value)
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "poster")
    ]
    assert all(target.startswith(("data:", "file:")) for target in targets)
    (policy,) = [meta for meta in page.named("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in str(policy["content"])
    assert not re.search(r"@import|url\(", render_report(report()))


def test_every_text_is_escaped() -> None:
    summary = RunSummary(
        name=EVIL, family=EVIL, model_type=EVIL, device=EVIL, steps=1, seconds=1.0,
        training_loss=1.0, metrics={f"eval_{EVIL}": 1.0}, warnings=[EVIL],
        run_directory=Path(EVIL),
    )  # fmt: skip
    evil = report(
        summary=summary,
        rows=[
            *rows(),
            {"step": 1, f"eval_{EVIL}": 1.0, "alert": EVIL},
            {"step": 2, f"eval_{EVIL}": 2.0},
        ],
        data=[SplitReport(EVIL, 2, 1, {EVIL: 1}, 1.0, [EVIL])],
        routes=[{EVIL: EVIL}],
        predictions=[PredictionRow(EVIL, EVIL, f"{EVIL} {EVIL}", 1, 1, EVIL)],
        configuration=EVIL,
        record={EVIL: EVIL},
    )
    text = render_report(evil)
    page = Page(text)
    assert page.named("script") == [] and page.named("img") == []
    assert "<script" not in text and "evil.example/x>" not in text.replace("&gt;", "")
    allowed = {
        "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "p", "div",
        "span", "b", "i", "section", "figure", "figcaption", "svg", "line", "text", "polyline",
        "circle", "mark", "dl", "dt", "dd", "table", "tr", "th", "td", "details", "summary", "pre",
        "a",
    }  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed


def test_alerts_and_warnings_are_shown_once() -> None:
    alert = {"step": 5, "alert": "loss-flat: raise the rate"}
    text = " ".join(Page(render_report(report(rows=[*rows(), alert, alert]))).text)
    assert text.count("loss-flat: raise the rate") == 1


def test_an_empty_run_still_has_a_page() -> None:
    summary = RunSummary("r", "f", "m", "cpu", 0, 0.0, None)
    page = Page(render_report(RunReport(summary)))
    assert page.named("svg") == []


def test_the_page_is_written_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    write_report(target, report())
    before = target.read_text()

    def full(self: Path, *arguments: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_report(target, report())
    assert target.read_text() == before


# -- charts -------------------------------------------------------------------------------


def coordinates(svg: str) -> list[list[tuple[float, float]]]:
    lines = re.findall(r'points="([^"]*)"', svg)
    return [[tuple(map(float, p.split(","))) for p in line.split()] for line in lines]  # type: ignore[misc]


def test_a_curve_is_drawn_to_scale() -> None:
    svg = line_chart("x", [Series("a", [(0, 0.0), (5, 10.0), (10, 0.0)])])
    ((left, middle, right),) = coordinates(svg)
    assert middle[0] - left[0] == pytest.approx(right[0] - middle[0], abs=0.2)
    assert left[1] == right[1] > middle[1]  # larger values are higher up


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    svg = line_chart("x", [Series("a", [(0, 1.0), (1, 2.0), (2, math.nan), (3, 2.0), (4, 1.0)])])
    assert [len(run) for run in coordinates(svg)] == [2, 2]
    assert "nan" not in svg and "inf" not in svg


def test_a_flat_curve_and_one_point() -> None:
    assert "polyline" in line_chart("x", [Series("a", [(0, 3.0), (1, 3.0)])])
    assert line_chart("x", [Series("a", [(0, 3.0)])]) == ""
    assert line_chart("x", [Series("a", [(0, math.nan), (1, math.inf)])]) == ""


def test_a_long_curve_is_thinned_but_keeps_its_spike() -> None:
    points = [(float(step), 1.0) for step in range(20_000)]
    points[7_777] = (7_777.0, 50.0)
    ((*drawn,),) = coordinates(line_chart("x", [Series("a", points)]))
    assert len(drawn) <= 500
    assert min(y for _, y in drawn) < 40  # near the top of the picture


def test_ticks_are_round_numbers() -> None:
    svg = line_chart("x", [Series("a", [(0, 0.0), (1000, 0.07)])], percent=True)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert "2 %" in labels and "4 %" in labels and "200" in labels and "1,000" in labels

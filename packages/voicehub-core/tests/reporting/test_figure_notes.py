"""What figures mean: on the panel, in the report; audio and pictures kept and shown."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console

from voicehub.adapters.experiment import FigureNote
from voicehub.reporting.console import ConsoleCallback
from voicehub.reporting.figure_notes import notes_html
from voicehub.reporting.media_files import MediaFilesCallback, latest_media, media_html
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.media import Audio, Image, Text
from voicehub.trainer.state import TrainerState

NOTES = (
    FigureNote("generator/mel", "mel L1", "distance of mels <b>", "falls", "falls", decides=True),
    FigureNote("generator/kl", "KL", "distance of latents", "between 1 and 2", "1 to 2"),
    FigureNote("never", "never logged", "nothing", "nothing"),
)


def test_the_report_lists_what_was_logged_with_its_last_value() -> None:
    rows = [
        {"step": 1, "loss": 3.0, "loss/generator/mel": 2.0},
        {"step": 2, "loss": 2.0, "loss/generator/mel": 0.5, "loss/generator/kl": 1.25},
    ]
    page = notes_html(NOTES, rows)
    assert "What decides: mel L1." in page
    assert "<td><b>mel L1</b></td>" in page and ">0.5<" in page and ">1.25<" in page
    assert "distance of mels &lt;b&gt;" in page
    assert "never logged" not in page
    assert notes_html(NOTES, [{"step": 1}]) == ""


def test_the_panel_shows_healthy_bands() -> None:
    stream = io.StringIO()
    callback = ConsoleCallback("run", stream=stream, live=True, notes=NOTES)
    args, state = TrainingArguments(), TrainerState(max_steps=10)
    callback.on_train_begin(args, state, None)  # type: ignore[arg-type]
    logs = {"loss": 2.0, "loss/generator/mel": 0.5, "loss/generator/kl": 1.25}
    callback.on_log(args, state, None, logs=logs)  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=120)
    console.print(callback._panel())
    callback.close()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    (line,) = [line for line in shown.splitlines() if "generator/kl" in line]
    assert "1.25" in line and "healthy: 1 to 2" in line
    assert "What decides: mel L1." in stream.getvalue()


def test_media_become_files_and_the_last_ones_stand_in_the_report(tmp_path: Path) -> None:
    callback = MediaFilesCallback(tmp_path)
    picture = Image.of_matrix(np.arange(6.0).reshape(2, 3))
    for step in (5, 10):
        media: dict[str, Any] = {
            "eval/a b/audio": Audio(np.zeros(80), 8000),
            "eval/a b/mel": picture,
            "eval/../x": Text("said"),
        }
        show(callback, step, media)
    names = [str(path.relative_to(tmp_path / "media")) for path in latest_media(tmp_path)]
    assert names == ["step-00000010/eval/a_b/audio.wav", "step-00000010/eval/a_b/mel.png"]
    assert (tmp_path / "media/step-00000005/eval/_/x.txt").read_text() == "said"
    page = media_html(latest_media(tmp_path))
    assert page.count("data:audio/wav;base64,") == 1
    assert page.count("data:image/png;base64,") == 1


def show(callback: MediaFilesCallback, step: int, media: dict[str, Any], limit: int = 20) -> None:
    args, state = SimpleNamespace(media_total_limit=limit), SimpleNamespace(global_step=step)
    callback.on_media(args, state, None, media=media)  # type: ignore[arg-type]


def test_media_of_the_newest_steps_stay(tmp_path: Path) -> None:
    callback = MediaFilesCallback(tmp_path)
    own = tmp_path / "media/step-of-mine"
    own.mkdir(parents=True)
    for step in (5, 100_000_000, 10, 15):  # the second is of a run that went on from before it
        show(callback, step, {"eval/x": Text("said")}, limit=2)
        show(callback, step, {"eval_ema/x": Text("said")}, limit=2)
    kept = {path.name for path in (tmp_path / "media").iterdir()}
    assert kept == {"step-00000010", "step-00000015", own.name}
    show(callback, 3, {"eval/x": Text("said")}, limit=1)
    assert (tmp_path / "media/step-00000003/eval/x.txt").is_file()
    assert TrainingArguments().media_total_limit == 20


def test_a_png_holds_the_pixels() -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 5, 3)).astype(np.uint8)
    content = Image(array).as_png()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, position = {}, 8
    while position < len(content):
        (size,) = struct.unpack(">I", content[position : position + 4])
        kind = content[position + 4 : position + 8]
        chunks[kind] = content[position + 8 : position + 8 + size]
        (checksum,) = struct.unpack(">I", content[position + 8 + size : position + 12 + size])
        assert checksum == zlib.crc32(kind + chunks[kind])
        position += 12 + size
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (5, 3, 8, 2, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(3, 1 + 15)
    assert (rows[:, 0] == 0).all()
    assert (rows[:, 1:].reshape(3, 5, 3) == array).all()

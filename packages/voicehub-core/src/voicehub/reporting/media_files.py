"""Audio and pictures of evaluations: kept in the run's directory, and shown in its report."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.trainer.callbacks import TrainerCallback

if TYPE_CHECKING:
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.media import Media
    from voicehub.trainer.state import TrainerControl, TrainerState

FOLDER = "media"
MAX_BYTES = 2 * 2**20  # of one file in a page; a larger one is linked
_STEP = re.compile(r"step-[0-9]{8,}")
_MIME = {".wav": "audio/wav", ".png": "image/png"}


class MediaFilesCallback(TrainerCallback):
    """Writes ``media/step-<step>/<name>.wav``, ``.png`` or ``.txt`` for whatever is logged.

    Folders of the newest ``media_total_limit`` steps stay.

    Args:
        run_directory: of the run.
    """

    def __init__(self, run_directory: Path) -> None:
        self.run_directory = run_directory

    def on_media(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Write what came."""
        folder = self.run_directory / FOLDER / f"step-{state.global_step:08d}"
        for name, medium in context["media"].items():
            path = folder / Path(*(file_name_of(part) for part in name.split("/") if part))
            path.parent.mkdir(parents=True, exist_ok=True)
            suffix, content = _encoded(medium)
            path.with_name(path.name + suffix).write_bytes(content)
        kept = _folders(self.run_directory)
        # What lies ahead is of a run that went on from an earlier step: it goes first.
        kept.sort(key=lambda path: _step_of(path) <= state.global_step)
        for old in kept[: -args.media_total_limit]:
            shutil.rmtree(old, ignore_errors=True)  # whatever keeps it there, training goes on


def _folders(run_directory: Path) -> list[Path]:
    """Those of the steps, in order."""
    found = [path for path in (run_directory / FOLDER).glob("step-*") if _STEP.fullmatch(path.name)]
    return sorted(found, key=_step_of)


def _step_of(folder: Path) -> int:
    return int(folder.name.partition("-")[2])


def latest_media(run_directory: Path) -> list[Path]:
    """Files of the last evaluation that showed any, by name."""
    folders = _folders(run_directory)
    if not folders:
        return []
    return sorted(path for path in folders[-1].rglob("*") if path.suffix in _MIME)


def media_html(paths: Sequence[Path]) -> str:
    """Players and pictures, those of one sample together; empty where there are none."""
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.parent, []).append(path)
    cards = []
    for folder, files in groups.items():
        shown = "".join(f"<dt>{escape(path.stem)}</dt><dd>{file_html(path)}</dd>" for path in files)
        cards.append(
            f'<div class="sample"><div class="top"><span>{escape(_place(folder))}</span></div>'
            f'<dl class="words">{shown}</dl></div>'
        )
    return f'<div class="card">{"".join(cards)}</div>' if cards else ""


def _place(folder: Path) -> str:
    """Names below the folder of the step: the evaluation and its weights, then the sample."""
    parts = list(folder.parts)
    steps = [number for number, part in enumerate(parts) if part.startswith("step-")]
    return " · ".join(parts[steps[-1] + 1 :] if steps else parts[-1:]) or folder.name


def file_html(path: Path) -> str:
    """A player or a picture with the file inside; a link where it is large."""
    try:
        content = path.read_bytes()
    except OSError:
        return escape(path.name)
    if len(content) > MAX_BYTES:
        return f'<a href="{escape(path.resolve().as_uri(), quote=True)}">{escape(path.name)}</a>'
    source = f"data:{_MIME[path.suffix]};base64,{base64.b64encode(content).decode('ascii')}"
    if path.suffix == ".wav":
        return f'<audio controls preload="none" src="{source}"></audio>'
    return f'<img alt="{escape(path.stem, quote=True)}" src="{source}" style="max-width:100%">'


def _encoded(medium: Media) -> tuple[str, bytes]:
    from voicehub.trainer.media import Audio, Image

    if isinstance(medium, Audio):
        return ".wav", medium.as_wav()
    if isinstance(medium, Image):
        return ".png", medium.as_png()
    return ".txt", medium.text.encode("utf-8")


def file_name_of(part: str) -> str:
    """A name for a file: ids may hold anything."""
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in part).lstrip(".")
    return kept[:100] or "_"

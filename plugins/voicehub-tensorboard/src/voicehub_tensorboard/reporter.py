"""The reporter: event files of one run, in a directory that a resume writes on to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.media import Audio, Image, Media
from voicehub.trainer.reporter import GLOBAL_STEP, Reporter, require_library
from voicehub.trainer.reporter_options import parse_options
from voicehub.trainer.state import TrainerState

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

NAME = "tensorboard"


class TensorBoardOptions(BaseModel):
    """``reporter_options={"tensorboard": {...}}``."""

    model_config = ConfigDict(extra="forbid")

    log_dir: str | None = Field(
        default=None, description="Where the directories of runs go: <output_dir>/tensorboard."
    )
    flush_secs: int = Field(default=30, ge=1, description="Longest time that a value waits.")


def make_reporter(args: TrainingArguments) -> TensorBoardReporter:
    """What ``report_to="tensorboard"`` loads."""
    options = parse_options(args, NAME, TensorBoardOptions)
    require_library(NAME, "tensorboard")
    return TensorBoardReporter(options)


class TensorBoardReporter(Reporter):
    """Writes event files.

    Args:
        options: settings.
        writer: a writer that the user opened: it is used, flushed and never closed.
    """

    def __init__(
        self, options: TensorBoardOptions | None = None, writer: SummaryWriter | None = None
    ) -> None:
        super().__init__()
        self.options = options or TensorBoardOptions()
        self._given = writer
        self._writer: Any = None

    def open_run(
        self, args: TrainingArguments, state: TrainerState, run_id: str | None, **context: Any
    ) -> str:
        """A new directory, or that of ``run_id``: a name, since run directories may be moved."""
        name = run_id or f"{args.run_name or 'run'}-{uuid.uuid4().hex[:8]}"
        if self._given is not None:
            self._writer = self._given
            return name
        from torch.utils.tensorboard import SummaryWriter

        root = self.options.log_dir or Path(args.output_dir) / "tensorboard"
        self._writer = SummaryWriter(
            log_dir=str(Path(root) / name.replace("/", "-")),
            flush_secs=self.options.flush_secs,
            # Updates after the checkpoint are made again: what they wrote is not shown twice.
            purge_step=None if run_id is None else state.global_step + 1,
        )
        if run_id is None:
            settings = json.dumps(args.to_dict(), indent=2, sort_keys=True)
            self._writer.add_text("training_arguments", _preformatted(settings), 0)
        return name

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """One scalar each; the global step is the axis itself."""
        for name, value in values.items():
            if name != GLOBAL_STEP:
                self._writer.add_scalar(name, value, step)

    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        """Each under its own tag."""
        for name, item in media.items():
            if isinstance(item, Audio):
                self._writer.add_audio(name, item.array[None], step, sample_rate=item.sample_rate)
            elif isinstance(item, Image):
                formats = "HW" if item.array.ndim == 2 else "HWC"
                self._writer.add_image(name, item.array, step, dataformats=formats)
            else:
                self._writer.add_text(name, _preformatted(item.text), step)

    def close_run(self, *, failed: bool) -> None:
        """Close an own writer; a given one is flushed."""
        writer, self._writer = self._writer, None
        writer.flush()
        if self._given is None:
            writer.close()


def _preformatted(text: str) -> str:
    """As Markdown that shows the text as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())

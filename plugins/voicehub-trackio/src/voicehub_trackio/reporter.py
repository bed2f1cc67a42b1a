"""The reporter: one Trackio run, kept on this machine or in a Space."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.media import Audio, Image, Media
from voicehub.trainer.reporter import Reporter, require_library
from voicehub.trainer.reporter_options import parse_options
from voicehub.trainer.state import TrainerState

NAME = "trackio"


class TrackioOptions(BaseModel):
    """``reporter_options={"trackio": {...}}``."""

    model_config = ConfigDict(extra="forbid")

    project: str = "voicehub"
    group: str | None = None
    space_id: str | None = Field(
        default=None, description="A Hugging Face Space to log to; this machine by default."
    )
    private: bool = Field(default=True, description="Whether a Space made for it is private.")


def make_reporter(args: TrainingArguments) -> TrackioReporter:
    """What ``report_to="trackio"`` loads; trackio itself is imported with the first event."""
    options = parse_options(args, NAME, TrackioOptions)
    require_library(NAME, "trackio")
    return TrackioReporter(options)


class TrackioReporter(Reporter):
    """Reports to the run that the user opened, if there is one, and else to one of its own."""

    def __init__(self, options: TrackioOptions | None = None) -> None:
        super().__init__()
        self.options = options or TrackioOptions()
        self._run: Any = None
        self._owns_run = False

    def open_run(
        self, args: TrainingArguments, state: TrainerState, run_id: str | None, **context: Any
    ) -> str:
        """Trackio resumes a run by its name, so the name is made unique and is the id."""
        import trackio
        from trackio import context_vars

        users_run = context_vars.current_run.get()
        self._owns_run = users_run is None
        if users_run is not None:
            self._run = users_run
            return str(users_run.name)
        self._run = trackio.init(
            project=self.options.project,
            name=run_id or f"{args.run_name or 'run'}-{uuid.uuid4().hex[:8]}",
            group=self.options.group,
            space_id=self.options.space_id,
            private=self.options.private,
            config=args.to_dict(),
            resume="allow",
            embed=False,
        )
        return str(self._run.name)

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """One row of the run."""
        self._run.log(dict(values), step=step)

    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        """One row of media objects."""
        self._run.log({name: _converted(item) for name, item in media.items()}, step=step)

    def close_run(self, *, failed: bool) -> None:
        """Finish an own run; waits until its rows are stored."""
        run, self._run = self._run, None
        if self._owns_run:
            from trackio import context_vars

            run.finish()
            if context_vars.current_run.get() is run:
                context_vars.current_run.set(None)


def _converted(item: Media) -> Any:
    import trackio

    if isinstance(item, Audio):
        # As int16: trackio would scale floating samples to full volume.
        return trackio.Audio(item.as_int16(), sample_rate=item.sample_rate, format="wav")
    if isinstance(item, Image):
        return trackio.Image(item.array)
    return trackio.Markdown("\n".join(f"    {line}" for line in item.text.splitlines()))

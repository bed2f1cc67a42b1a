"""The reporter: scalars, media and, where asked for, artifacts of one wandb run."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub.checkpoints.layout import is_complete
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.media import Audio, Image, Media
from voicehub.trainer.reporter import GLOBAL_STEP, Reporter, require_library
from voicehub.trainer.reporter_options import parse_options
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub_wandb.options import WandbOptions

NAME = "wandb"


def make_reporter(args: TrainingArguments) -> WandbReporter:
    """What ``report_to="wandb"`` loads; wandb itself is imported with the first event."""
    options = parse_options(args, NAME, WandbOptions)
    require_library(NAME, "wandb")
    return WandbReporter(options)


class WandbReporter(Reporter):
    """Reports to ``wandb.run`` if the user opened one, and else to a run of its own."""

    def __init__(self, options: WandbOptions | None = None) -> None:
        super().__init__()
        self.options = options or WandbOptions()
        self._run: Any = None
        self._owns_run = False

    def open_run(
        self, args: TrainingArguments, state: TrainerState, run_id: str | None, **context: Any
    ) -> str:
        """Take the user's run, continue ``run_id``, or start a new one."""
        import wandb

        self._owns_run = wandb.run is None
        self._run = wandb.run if wandb.run is not None else self._init(args, run_id)
        # Other charts of a user's own run keep the axis they have.
        self._run.define_metric(GLOBAL_STEP)
        for metrics in ("train/*", "eval/*", "test/*"):
            self._run.define_metric(metrics, step_metric=GLOBAL_STEP, step_sync=True)
        self._run.config.update({"training": args.to_dict()}, allow_val_change=True)
        return str(self._run.id)

    def _init(self, args: TrainingArguments, run_id: str | None) -> Any:
        import wandb

        options = self.options
        # wandb's own files go to the run directory, unless WANDB_DIR names another place.
        directory = None if os.environ.get("WANDB_DIR") else args.output_dir
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=options.project,
            entity=options.entity,
            group=options.group,
            tags=options.tags or None,
            notes=options.notes,
            mode=options.mode,
            name=args.run_name,
            dir=directory,
            id=run_id,
            resume="allow" if run_id is not None else None,
        )

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """One row of the run's history."""
        self._run.log(dict(values))

    def write_media(self, media: Mapping[str, Media], step: int) -> None:
        """Media objects of wandb in one row of the history."""
        with tempfile.TemporaryDirectory() as directory:
            row = {
                name: _converted(item, Path(directory) / f"{position}.wav")
                for position, (name, item) in enumerate(media.items())
            }
            self._run.log({**row, GLOBAL_STEP: float(step)})

    def close_run(self, *, failed: bool) -> None:
        """Finish an own run."""
        run, self._run = self._run, None
        if self._owns_run:
            run.finish(exit_code=int(failed))

    def on_checkpoint_saved(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Upload a complete checkpoint with ``log_model="checkpoint"``."""
        path = Path(context["checkpoint"])
        wanted = self.options.log_model == "checkpoint" and is_complete(path)
        if wanted and self._ready(args, state, context):
            self._upload(path, f"checkpoint-{self.run_id}", alias=path.name)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Upload the portable artifact with ``log_model="end"``, then close."""
        try:
            if self.options.log_model == "end":
                path = context["trainer"].save_final_model()
                if self._ready(args, state, context):
                    self._upload(path, f"model-{self.run_id}", alias="final")
        finally:
            super().on_train_end(args, state, control, **context)

    def _upload(self, directory: Path, name: str, alias: str) -> None:
        import wandb

        artifact = wandb.Artifact(name=name, type="model")
        artifact.add_dir(str(directory))
        self._run.log_artifact(artifact, aliases=["latest", alias])


def _converted(item: Media, path: Path) -> Any:
    import wandb

    if isinstance(item, Audio):
        path.write_bytes(item.as_wav())  # of an array, wandb would need another library
        return wandb.Audio(str(path), sample_rate=item.sample_rate)
    if isinstance(item, Image):
        return wandb.Image(item.array)
    return wandb.Html(f"<pre>{html.escape(item.text)}</pre>", inject=False)

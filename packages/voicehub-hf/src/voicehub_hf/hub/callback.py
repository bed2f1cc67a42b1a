"""The callback behind ``push_to_hub``: says what is uploaded when, and shows what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voicehub.checkpoints.layout import is_complete
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub_hf.hub.background import BackgroundUploads
from voicehub_hf.hub.repository import Repository, describe, is_final
from voicehub_hf.hub.staging import remove_litter, stage

CHECKPOINT_FOLDER = "last-checkpoint"
ALERT = "hub-upload"
GRACE_ON_ERROR = 30.0  # seconds that a run which failed waits for the upload under way
_PATIENCE = 600.0  # seconds, and one more for each of the bytes below
_SLOWEST = 1_000_000  # bytes a second


def make_callback(args: TrainingArguments) -> HubUploads:
    """What ``push_to_hub=True`` loads; refuses at the start what lacks a token."""
    name = args.hub_model_id or Path(args.output_dir).resolve().name
    repository = Repository(name, private=args.hub_private_repo)
    uploads = BackgroundUploads(repository.send, is_final=is_final, describe=describe)
    return HubUploads(name, uploads)


class HubUploads(TrainerCallback):
    """With ``hub_strategy="end"`` the final model goes to the root of the repository; with
    ``"every_save"`` each complete checkpoint goes to ``last-checkpoint/`` before that.

    Training waits for nothing until its end. A failure is an alert, and so in the metrics, on the
    console and in the summary.
    """

    def __init__(self, repository: str, uploads: BackgroundUploads) -> None:
        self.repository = repository
        self.uploads = uploads

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Tidy up after a process that was killed."""
        if state.is_world_process_zero:
            remove_litter(Path(args.output_dir))

    def on_checkpoint_saved(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Start the upload of a complete checkpoint."""
        path = Path(context["checkpoint"])
        if not state.is_world_process_zero or args.hub_strategy != "every_save":
            return
        self._show_failures(context)
        if is_complete(path):
            self.uploads.submit(
                stage(
                    path,
                    Path(args.output_dir),
                    title=path.name,
                    path_in_repo=CHECKPOINT_FOLDER,
                )
            )

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Show what failed in the meantime."""
        self._show_failures(context)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Upload the final model and wait until it is there, or has failed."""
        final = context["trainer"].save_final_model()
        if not state.is_world_process_zero:
            return
        upload = stage(final, Path(args.output_dir), title="final model")
        self.uploads.submit(upload)
        patience = _PATIENCE + upload.size / _SLOWEST
        if not self.uploads.wait(patience):
            self._alert(context, f"no answer within {patience:.0f} s")
        self._show_failures(context)

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Let the upload under way come to its end, for a short time."""
        if state.is_world_process_zero:
            self.uploads.stop()
            self.uploads.wait(GRACE_ON_ERROR)
            self._show_failures(context)

    def _show_failures(self, context: dict[str, Any]) -> None:
        for failure in self.uploads.take_failures():
            self._alert(context, failure)

    def _alert(self, context: dict[str, Any], text: str) -> None:
        advice = f"by hand: hf upload {self.repository} DIRECTORY"
        context["trainer"].alert(ALERT, f"{text}. Training was not affected. To upload it {advice}")

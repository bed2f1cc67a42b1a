"""A run on several ranks whose first one uploads; a module, since ranks import it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import huggingface_hub.constants
from rank_tasks import make, result

from voicehub.trainer.callbacks import TrainerCallback


class WaitForUpload(TrainerCallback):
    """So that no checkpoint is replaced by a newer one before it was sent."""

    def on_checkpoint_saved(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        callbacks = context["trainer"].callbacks.callbacks
        (hub,) = [c.reporter for c in callbacks if getattr(c, "name", "") == "hub"]
        assert hub.uploads.wait(60)


def train_and_upload(directory: Path, url: str, run: dict[str, Any]) -> dict[str, Any]:
    """The ``result`` of a run that sends every checkpoint to a hub at ``url``."""
    where = {"HF_ENDPOINT": url, "HF_TOKEN": "hf_LoopbackSecretOfTheTests"}
    constants = huggingface_hub.constants
    with (
        mock.patch.dict(os.environ, where),
        mock.patch.object(constants, "HF_HUB_DISABLE_XET", True),
        mock.patch.object(constants, "HF_HUB_OFFLINE", False),
    ):
        trainer = make(
            directory=directory,
            options={"callbacks": [WaitForUpload()]},
            push_to_hub=True,
            hub_model_id="tester/line",
            hub_strategy="every_save",
            **run,
        )
        trainer.train()
        return result(trainer)

"""Models whose own forward computes the loss, over tensors that the user has prepared."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub_codec_lm.networks import base

MODEL_FOLDER = "transformers"
#: Package and class by model type.
CLASSES = {
    "parlertts": ("parler_tts", "ParlerTTSForConditionalGeneration"),
    "dia": ("transformers", "DiaForConditionalGeneration"),
    "orpheus": ("transformers", "LlamaForCausalLM"),
    "llasa": ("transformers", "LlamaForCausalLM"),
}
#: Codecs inside models; they stay as they are.
_CODECS = ("audio_encoder", "codec_model")


class PreparedModel(PreTrainedTTSModel):
    """A class of its library, which takes prepared batches with labels and returns a loss.

    Args:
        name_or_path: checkpoint of the class, or an artifact of ours.
    """

    destructive_inference_load = False

    @property
    def model_class(self) -> Any:
        """The class of its library.

        Raises:
            ConfigurationError: its package is not installed.
        """
        package, name = CLASSES[self.model_type]
        try:
            return getattr(importlib.import_module(package), name)
        except ImportError as error:
            raise ConfigurationError(
                f"{self.model_type!r} is a class of the package {package}, which is not installed."
            ) from error

    def artifact_config(self) -> dict[str, Any]:
        package, name = CLASSES[self.model_type]
        return {"package": package, "class": name}

    def _load_weights(self) -> None:
        source = Path(self.name_or_path)
        if source.is_dir() and is_artifact(source):
            read_artifact(source)
            source = source / MODEL_FOLDER
        name = str(source) if source.is_dir() else self.name_or_path
        model = base.from_pretrained(self.model_class, name, revision=self.revision)
        for part in _CODECS:
            codec = getattr(model, part, None)
            if isinstance(codec, torch.nn.Module):
                codec.requires_grad_(False)
        self.model = model.to(self.device)
        self.model.train(self.is_training_load)

    def _save_family_files(self, directory: Path) -> None:
        base.save(self.model, directory / MODEL_FOLDER)

    def export_native(self, directory: Path) -> bool:
        """Write what the model's own library loads."""
        base.save(self.model, directory)
        return True

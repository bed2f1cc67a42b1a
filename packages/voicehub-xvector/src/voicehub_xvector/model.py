"""The model wrappers of this family, and opening an artifact without knowing its type."""

from __future__ import annotations

from pathlib import Path

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import read_artifact
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.encoder_model import EncoderXVector
from voicehub_xvector.log_mel_model import LogMelXVector
from voicehub_xvector.specs import FAMILY

__all__ = ["EncoderXVector", "LogMelXVector", "XVectorModel", "open_model"]

_FINAL_MODEL = "final-model"


def open_model(directory: str | Path, *, device: str = "cpu") -> XVectorModel:
    """Load the embedder in a directory of a model or of a run.

    Raises:
        ConfigurationError: there is no model of this family.
    """
    directory = Path(directory)
    inside = directory / _FINAL_MODEL
    artifact = read_artifact(inside if inside.is_dir() else directory)
    if artifact.family != FAMILY:
        raise ConfigurationError(
            f"{artifact.directory} holds a {artifact.model_type!r}, which gives no embeddings."
        )
    kind = LogMelXVector if artifact.model_type == "xvector-logmel" else EncoderXVector
    model = kind(artifact.directory, model_type=artifact.model_type, device=device)
    return model.load()

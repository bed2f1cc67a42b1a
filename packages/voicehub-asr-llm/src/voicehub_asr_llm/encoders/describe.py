"""Which kind of encoder lies at a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub.models.artifact import artifact_directory, is_artifact
from voicehub.suggest import did_you_mean
from voicehub_asr_llm.config import EncoderConfig
from voicehub_asr_llm.encoders.base import EncoderSource
from voicehub_hf.checkpoint_config import read_config_dict
from voicehub_hf.speech_encoders import SPEECH_ENCODERS

#: Where an artifact of ours keeps what plain transformers loads.
_NATIVE_EXPORT = "native_export"


def describe_encoder(config: EncoderConfig) -> EncoderSource:
    """Describe the encoder of a configuration; no weights load.

    Raises:
        ConfigurationError: no encoder is known for what lies there; the message names those that
            are.
        CheckpointError: nothing lies there.
    """
    from voicehub_asr_llm.encoders.pretrained import PretrainedSource
    from voicehub_asr_llm.encoders.recogniser import RecogniserSource

    directory = artifact_directory(config.path)
    if directory.is_dir() and is_artifact(directory):
        native = directory / _NATIVE_EXPORT
        if not (native / "config.json").is_file():
            return RecogniserSource(config, directory)
        config = config.model_copy(update={"path": str(native)})
    return PretrainedSource(config, _model_type(config))


def _model_type(config: EncoderConfig) -> str:
    """``model_type`` of a checkpoint of transformers, if it is one of the known."""
    fetch: dict[str, Any] = {
        "revision": config.revision,
        "local_files_only": config.local_files_only or Path(config.path).is_dir(),
    }
    try:
        found = read_config_dict(config.path, **fetch)
    except CheckpointError as error:
        raise CheckpointError(
            f"model.encoder.path: no checkpoint at {config.path} can be read. {error}"
        ) from error
    model_type = str(found.get("model_type"))
    if model_type not in SPEECH_ENCODERS:
        raise ConfigurationError(
            f"model.encoder.path: {config.path} holds a model of type '{model_type}', which is no "
            f"speech encoder that VoiceHub knows. Known: {', '.join(SPEECH_ENCODERS)}, and "
            f"recognisers of type 'ctc-logmel'.{did_you_mean(model_type, SPEECH_ENCODERS)}"
        )
    return model_type

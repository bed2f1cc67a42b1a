"""Settings of a checkpoint's training, as given in Python or by a run."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from voicehub.errors import ConfigurationError
from voicehub.trainer.validation import explain_validation_error
from voicehub_vits.acoustic import read_acoustic_config
from voicehub_vits.config import VitsModelConfig


def settings_from_options(path: str, options: dict[str, Any]) -> VitsModelConfig:
    """Read what was given to ``from_pretrained`` beside the path.

    Raises:
        ConfigurationError: an option is unknown (the nearest is named) or does not fit.
    """
    given = dict(options)
    if given.get("training_acoustic_config") is not None:
        given["training_acoustic_config"] = read_acoustic_config(given["training_acoustic_config"])
    try:
        return VitsModelConfig(path=path, **given)
    except ValidationError as error:
        names = list(VitsModelConfig.model_fields)
        raise ConfigurationError(explain_validation_error(error, names, "vits")) from None

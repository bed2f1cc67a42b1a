"""Models of other families that listen to what was synthesised: recogniser and embedder."""

from __future__ import annotations

from typing import Any

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.artifact import artifact_directory
from voicehub.models.auto import AutoModelForSpeakerEmbedding, AutoModelForSpeechRecognition
from voicehub_vits.config import VitsEvalConfig
from voicehub_vits.text import TextFrontEnd


def load_recogniser(config: VitsEvalConfig, *, lazy: bool = False) -> Any:
    """The recogniser of ``eval.recogniser``; a lazy one holds no weights."""
    assert config.recogniser is not None
    return AutoModelForSpeechRecognition.from_pretrained(
        _source(config.recogniser), model_type=config.recogniser_type, lazy_load=lazy
    )


def load_embedder(config: VitsEvalConfig, *, lazy: bool = False) -> Any:
    """The speaker embedder of ``eval.embedder``; a lazy one holds no weights."""
    assert config.embedder is not None
    return AutoModelForSpeakerEmbedding.from_pretrained(_source(config.embedder), lazy_load=lazy)


def check_evaluation(config: VitsEvalConfig, front_end: TextFrontEnd) -> None:
    """Find out before training what would end a run at its first evaluation; no weights load.

    Raises:
        ConfigurationError: a sentence cannot be said, or a listener is not there or of another
            kind; the message names the setting.
    """
    try:
        for number, sentence in enumerate(config.sentences, start=1):
            front_end.require(sentence, f"eval.sentences, number {number}")
    except DataError as error:
        raise ConfigurationError(str(error)) from None
    for key, load in (("recogniser", load_recogniser), ("embedder", load_embedder)):
        if getattr(config, key) is None:
            continue
        try:
            load(config, lazy=True)
        except ConfigurationError as error:
            text = str(error).replace("pass model_type", f"set eval.{key}_type")
            raise ConfigurationError(f"eval.{key}: {text}") from None


def _source(name: str) -> str:
    """A run's directory stands for its final model; an id stays as typed."""
    inside = artifact_directory(name)
    return str(inside) if inside.is_dir() else name

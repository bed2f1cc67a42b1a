"""Find the wrapper class of a checkpoint; no network is touched here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import CONFIG_FILE, FORMAT_KEY, read_artifact, read_config
from voicehub.models.lifecycle import PreTrainedSpeechModel
from voicehub.plugins import loading
from voicehub.plugins.groups import MODELS
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import get_training_spec, known_model_types, list_training_specs
from voicehub.specs.task import SpeechTask

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class _AutoModel:
    """Lookup shared by the auto classes; a subclass states the task it serves."""

    task: ClassVar[SpeechTask]
    _registered: ClassVar[dict[str, type[PreTrainedSpeechModel]]] = {}

    def __init__(self) -> None:
        raise OSError(f"{type(self).__name__} is not instantiated; call from_pretrained().")

    @classmethod
    def from_pretrained(
        cls,
        id_or_path: str | Path,
        *,
        model_type: str | None = None,
        device: str = "cpu",
        lazy_load: bool = True,
        revision: str | None = None,
        **options: Any,
    ) -> PreTrainedSpeechModel:
        """Return the wrapper of a checkpoint.

        The model type is the argument, else that of our artifact's ``config.json``, else the one
        whose spec lists the ``architectures`` of a transformers ``config.json``.

        Args:
            id_or_path: Local directory or Hub id.
            model_type: Exact model type.
            device: Where weights load.
            lazy_load: Hold no weights until ``load()`` or ``load_for_training()``.
            revision: Hub revision.
            options: Passed to the wrapper.

        Raises:
            ConfigurationError: the directory does not exist, the type cannot be inferred, or the
                model serves another task.
            UnknownModelTypeError: no spec has that type.
            PluginError: the plugin that provides the wrapper cannot be used.
        """
        local = _local_directory(id_or_path)
        spec = get_training_spec(model_type) if model_type else _inferred_spec(id_or_path, local)
        if spec.task is not cls.task:
            raise ConfigurationError(
                f"{spec.model_type!r} serves {spec.task.value}, not {cls.task.value}; load it "
                f"with {_AUTO_CLASSES.get(spec.task, 'its own class')}."
            )
        return cls._model_class(spec).from_pretrained(
            id_or_path,
            model_type=spec.model_type,
            device=device,
            lazy_load=lazy_load,
            revision=revision,
            **options,
        )

    @classmethod
    def register(
        cls, model_type: str, model_class: type[PreTrainedSpeechModel], *, exist_ok: bool = False
    ) -> None:
        """Register a wrapper class for this process; it wins over a plugin's.

        Raises:
            ConfigurationError: the type already has one and ``exist_ok`` is false.
        """
        if model_type in _AutoModel._registered and not exist_ok:
            raise ConfigurationError(
                f"{model_type!r} already has a model class; pass exist_ok=True to replace it."
            )
        _AutoModel._registered[model_type] = model_class

    @classmethod
    def unregister(cls, model_type: str) -> None:
        """Remove what ``register`` added; nothing happens where there is nothing."""
        _AutoModel._registered.pop(model_type, None)

    @classmethod
    def _model_class(cls, spec: ModelTrainingSpec) -> type[PreTrainedSpeechModel]:
        registered = _AutoModel._registered.get(spec.model_type)
        if registered is not None:
            return registered
        loaded = loading.load(MODELS, spec.model_type)
        if not (isinstance(loaded, type) and issubclass(loaded, PreTrainedSpeechModel)):
            raise ConfigurationError(
                f"The plugin that provides the model {spec.model_type!r} must name a subclass of "
                f"PreTrainedSpeechModel, got {loaded!r}."
            )
        return loaded


class AutoModelForSpeechRecognition(_AutoModel):
    """Loads recognisers."""

    task = SpeechTask.AUTOMATIC_SPEECH_RECOGNITION


class AutoModelForTextToSpeech(_AutoModel):
    """Loads text-to-speech models."""

    task = SpeechTask.TEXT_TO_SPEECH


class AutoModelForSpeakerEmbedding(_AutoModel):
    """Loads speaker embedders."""

    task = SpeechTask.SPEAKER_EMBEDDING


_AUTO_CLASSES = {
    SpeechTask.SPEAKER_EMBEDDING: "AutoModelForSpeakerEmbedding",
    SpeechTask.AUTOMATIC_SPEECH_RECOGNITION: "AutoModelForSpeechRecognition",
    SpeechTask.TEXT_TO_SPEECH: "AutoModelForTextToSpeech",
}


def infer_model_type(directory: str | Path) -> str:
    """Return the model type of a local directory: our artifact, or a transformers checkpoint.

    Raises:
        ConfigurationError: the directory says nothing that a known spec matches.
    """
    directory = Path(directory)
    if FORMAT_KEY in read_config(directory):
        return read_artifact(directory).model_type
    architectures = read_config(directory).get("architectures") or []
    matches = {
        spec.model_type
        for spec in list_training_specs()
        if set(spec.architectures) & set(architectures)
    }
    if len(matches) == 1:
        return matches.pop()
    found = f"architectures {', '.join(architectures)}" if architectures else "no architectures"
    what = f"several types match ({', '.join(sorted(matches))})" if matches else "no type matches"
    raise ConfigurationError(
        f"{directory / CONFIG_FILE} names {found}; {what}. Pass model_type, one of "
        f"{_known_types()}."
    )


def _inferred_spec(id_or_path: str | Path, local: Path | None) -> ModelTrainingSpec:
    if local is None:
        raise ConfigurationError(
            f"{str(id_or_path)!r} is no local directory, so its type is not known before a "
            f"download; pass model_type, one of {_known_types()}."
        )
    return get_training_spec(infer_model_type(local))


def _local_directory(id_or_path: str | Path) -> Path | None:
    """Return an existing directory; None for what can only be a Hub id."""
    path = Path(id_or_path).expanduser()
    if path.exists():
        return path
    if isinstance(id_or_path, Path) or not _HUB_ID.fullmatch(id_or_path):
        raise ConfigurationError(
            f"{str(id_or_path)!r} does not exist; expected a model directory or a Hub id "
            "such as 'organisation/name'."
        )
    return None


def _known_types() -> str:
    return ", ".join(known_model_types()) or "(no family is installed)"

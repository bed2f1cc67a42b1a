"""Load the models that ``eval`` and ``transcribe`` were given."""

from __future__ import annotations

from voicehub.cli.logs import show_logs
from voicehub.cli.model_tasks import options_by_name, require_task, task_of
from voicehub.cli.options import resolve_device
from voicehub.errors import UnsupportedTrainingError
from voicehub.models.artifact import artifact_directory
from voicehub.models.lifecycle import PreTrainedRecognitionModel, PreTrainedSpeakerModel
from voicehub.specs.task import SpeechTask


def load_recogniser(
    name_or_path: str, *, model_type: str | None, device: str
) -> PreTrainedRecognitionModel:
    """A recogniser with its weights, from a model directory, a run directory or a Hub id.

    Raises:
        ConfigurationError: the directory does not exist, or is no model of a known type.
        UnsupportedTrainingError: it is a model, but no recogniser.
    """
    from voicehub.models.auto import AutoModelForSpeechRecognition

    show_logs()
    source = _source(name_or_path)
    with options_by_name():
        require_task(source, name_or_path, model_type, SpeechTask.AUTOMATIC_SPEECH_RECOGNITION)
        model = AutoModelForSpeechRecognition.from_pretrained(
            source, model_type=model_type, device=resolve_device(device), lazy_load=False
        )
    if not isinstance(model, PreTrainedRecognitionModel):
        raise UnsupportedTrainingError(
            f"'{model.model_type}' ({name_or_path}) does not transcribe."
        )
    return model


def load_measurable(
    name_or_path: str, *, model_type: str | None, device: str
) -> PreTrainedRecognitionModel | PreTrainedSpeakerModel:
    """A recogniser or a speaker embedder, as ``load_recogniser`` loads the first.

    Raises:
        ConfigurationError: the directory does not exist, or is no model of such a type.
    """
    from voicehub.models.auto import AutoModelForSpeakerEmbedding

    source, speakers = _source(name_or_path), SpeechTask.SPEAKER_EMBEDDING
    with options_by_name():
        require_task(
            source, name_or_path, model_type, SpeechTask.AUTOMATIC_SPEECH_RECOGNITION, speakers
        )
        if task_of(source, model_type) is not speakers:
            return load_recogniser(name_or_path, model_type=model_type, device=device)
        show_logs()
        model = AutoModelForSpeakerEmbedding.from_pretrained(
            source, model_type=model_type, device=resolve_device(device), lazy_load=False
        )
    if not isinstance(model, PreTrainedSpeakerModel):
        raise UnsupportedTrainingError(
            f"'{model.model_type}' ({name_or_path}) does not embed speakers."
        )
    return model


def _source(name_or_path: str) -> str:
    inside = artifact_directory(name_or_path)
    return str(inside) if inside.is_dir() else name_or_path  # a Hub id stays as it was typed

"""Load the model that ``eval`` and ``transcribe`` were given."""

from __future__ import annotations

from voicehub.cli.logs import show_logs
from voicehub.cli.options import resolve_device
from voicehub.errors import UnsupportedTrainingError
from voicehub.models.artifact import artifact_directory
from voicehub.models.lifecycle import PreTrainedRecognitionModel


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
    inside = artifact_directory(name_or_path)
    source = inside if inside.is_dir() else name_or_path  # a Hub id stays as it was typed
    model = AutoModelForSpeechRecognition.from_pretrained(
        str(source), model_type=model_type, device=resolve_device(device), lazy_load=False
    )
    if not isinstance(model, PreTrainedRecognitionModel):
        raise UnsupportedTrainingError(f"'{model.model_type}' ({source}) does not transcribe.")
    return model

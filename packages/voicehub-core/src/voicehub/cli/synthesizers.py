"""Load the model that ``synthesize`` was given."""

from __future__ import annotations

from voicehub.cli.logs import show_logs
from voicehub.cli.model_tasks import options_by_name, require_task
from voicehub.cli.options import resolve_device
from voicehub.errors import UnsupportedTrainingError
from voicehub.models.artifact import artifact_directory
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.specs.task import SpeechTask


def load_synthesizer(
    name_or_path: str, *, model_type: str | None, device: str
) -> PreTrainedTTSModel:
    """A text-to-speech model with its weights, from a directory, a run directory or a Hub id.

    Raises:
        ConfigurationError: the directory does not exist, or is no model of a known type.
        UnsupportedTrainingError: it is a model, but none that speaks.
    """
    from voicehub.models.auto import AutoModelForTextToSpeech

    show_logs()
    inside = artifact_directory(name_or_path)
    source = str(inside) if inside.is_dir() else name_or_path  # a Hub id stays as typed
    with options_by_name():
        require_task(source, name_or_path, model_type, SpeechTask.TEXT_TO_SPEECH)
        model = AutoModelForTextToSpeech.from_pretrained(
            source, model_type=model_type, device=resolve_device(device), lazy_load=False
        )
    if not isinstance(model, PreTrainedTTSModel):
        raise UnsupportedTrainingError(f"'{model.model_type}' ({source}) does not speak.")
    return model

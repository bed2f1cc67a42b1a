"""Refuse a model of another task in the words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voicehub.cli.output import UsageError
from voicehub.errors import ConfigurationError
from voicehub.specs.task import SpeechTask

_COMMANDS = {
    SpeechTask.AUTOMATIC_SPEECH_RECOGNITION: "voicehub transcribe FILE --model {model}",
    SpeechTask.SPEAKER_EMBEDDING: "voicehub eval {model} --data MANIFEST",
    SpeechTask.TEXT_TO_SPEECH: "voicehub synthesize --text TEXT --out FILE --model {model}",
    SpeechTask.AUDIO_GENERATION: "voicehub sample --prompts FILE --out FOLDER --model {source}",
}


def task_of(source: str, model_type: str | None) -> SpeechTask | None:
    """What a model does; None where its type is not known before it is loaded."""
    from voicehub.models.auto import infer_model_type
    from voicehub.specs.registry import get_training_spec

    found = model_type or (infer_model_type(source) if Path(source).is_dir() else None)
    return None if found is None else get_training_spec(found).task


def require_task(source: str, given: str, model_type: str | None, *tasks: SpeechTask) -> None:
    """Stop before a model of another task is loaded.

    Args:
        source: the artifact's directory, or a Hub id.
        given: as it was typed.
        model_type: as it was typed.
        tasks: those that the command has a use for.

    Raises:
        UsageError: the model is of another; the message names the command for it.
        ConfigurationError: its type is unknown.
    """
    task = task_of(source, model_type)
    if task is None or task in tasks:
        return
    instead = _COMMANDS.get(task)
    use = f" Use it with: {instead.format(model=given, source=source)}" if instead else ""
    expected = " or ".join(wanted.value for wanted in tasks)
    raise UsageError(f"{given} is a model for {task.value}, not for {expected}.{use}")


@contextmanager
def options_by_name() -> Iterator[None]:
    """Where a message asks for the argument ``model_type``, ask for the option instead.

    Raises:
        UsageError: what was raised inside, in these words.
    """
    try:
        yield
    except ConfigurationError as error:
        text = str(error)
        asked = text.replace("pass model_type,", "give --model-type,")
        asked = asked.replace("Pass model_type,", "Give --model-type,")
        if asked == text:
            raise
        raise UsageError(asked) from None

"""``voicehub transcribe``: recordings to text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import DeviceOption, JsonOption
from voicehub.cli.output import UsageError, finish, print_error
from voicehub.errors import DataError

if TYPE_CHECKING:
    from voicehub.models.lifecycle import PreTrainedRecognitionModel
    from voicehub.models.results import Transcription


def transcribe(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Audio files.")],
    model: Annotated[str, typer.Option("--model", help="A model: its directory or its run.")],
    beam_size: Annotated[int, typer.Option(min=1, help="1 is greedy decoding.")] = 1,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Start and end of every word, in seconds.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1)] = 8,
    model_type: Annotated[
        str | None, typer.Option(help="Needed where the directory does not say it itself.")
    ] = None,
    device: DeviceOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Transcribe audio files. A file that cannot be read is named; the others are done."""
    from voicehub.cli.recognisers import load_recogniser

    _require_files(files)
    recogniser = load_recogniser(model, model_type=model_type, device=device)
    options = {"batch_size": batch_size, "beam_size": beam_size, "timestamps": timestamps}
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for file, outcome in _outcomes(recogniser, files, batch_size, options):
        if isinstance(outcome, DataError):
            failed.append({"file": str(file), "message": str(outcome)})
            text = str(outcome)  # which mostly begins with the file
            print_error(text if text.startswith(str(file)) else f"{file}: {text}")
            continue
        done.append({"file": str(file), **outcome.to_dict()})
        if not json_:
            print(_text(file, outcome, alone=len(files) == 1), flush=True)
    result: dict[str, Any] = {"transcriptions": done, "failed": failed}
    finish(result, json_mode=json_, ok=not failed)


def _require_files(files: Sequence[Path]) -> None:
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise UsageError(f"No such audio file: {', '.join(missing)}.")
    folders = [str(file) for file in files if file.is_dir()]
    if folders:
        raise UsageError(
            f"Audio files are expected, these are folders: {', '.join(folders)}. Name what lies in "
            f"them, as in {folders[0]}/*.wav."
        )


def _outcomes(
    recogniser: PreTrainedRecognitionModel,
    files: Sequence[Path],
    batch_size: int,
    options: dict[str, Any],
) -> Iterator[tuple[Path, Transcription | DataError]]:
    """Results as they come, batch by batch; a batch with a bad file is redone file by file."""
    for start in range(0, len(files), batch_size):
        batch = files[start : start + batch_size]
        try:
            yield from zip(batch, recogniser.transcribe(batch, **options), strict=True)
        except DataError as error:
            if len(batch) == 1:
                yield batch[0], error
                continue
            yield from _outcomes(recogniser, batch, 1, options)


def _text(file: Path, outcome: Transcription, *, alone: bool) -> str:
    lines = [outcome.text if alone else f"{file}: {outcome.text}"]
    if outcome.words is not None:
        lines += [f"  {word.start:8.2f}  {word.end:8.2f}  {word.word}" for word in outcome.words]
    return "\n".join(lines)

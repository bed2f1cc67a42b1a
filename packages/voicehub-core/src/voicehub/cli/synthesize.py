"""``voicehub synthesize``: texts to recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from voicehub.cli.options import DeviceOption, JsonOption
from voicehub.cli.output import UsageError, finish, print_error
from voicehub.errors import DataError


def synthesize(
    model: Annotated[str, typer.Option("--model", help="A model: its directory or its run.")],
    out: Annotated[Path, typer.Option("--out", help="A .wav file, or a folder for several texts.")],
    text: Annotated[
        list[str] | None, typer.Option("--text", help="What to say; may be given again.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="One text a line; empty lines are left out.")
    ] = None,
    speaker: Annotated[
        str | None, typer.Option(help="Name or number, where the model has several.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Where the model has several.")] = None,
    speaking_rate: Annotated[
        float | None, typer.Option(min=0.1, max=10.0, help="Over 1 is faster.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Equal seeds give equal speech.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the model's own options, e.g. steps=16; repeat."),
    ] = None,
    model_type: Annotated[
        str | None, typer.Option(help="Needed where the directory does not say it itself.")
    ] = None,
    device: DeviceOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Speak texts. One that cannot be said is named; the others are done."""
    from voicehub.cli import synthesizers
    from voicehub.trainer.media import Audio

    texts = _texts(text, file)
    paths = _paths(out, len(texts))
    options: dict[str, Any] = {"speaker": speaker, "language": language}
    options |= {"speaking_rate": speaking_rate, "seed": seed}
    options |= _own_options(set_ or [], options)
    synthesizer = synthesizers.load_synthesizer(model, model_type=model_type, device=device)
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for number, (content, path) in enumerate(zip(texts, paths, strict=True), start=1):
        try:
            (spoken,) = synthesizer.synthesize([content], **options)
        except DataError as error:
            failed.append({"text": content, "message": str(error)})
            print_error(f"text {number} of {len(texts)}: {error}" if len(texts) > 1 else str(error))
            continue
        audio = Audio(spoken.waveform, spoken.sampling_rate)
        _write(path, audio.as_wav())
        row = {"text": content, "file": str(path), "seconds": round(spoken.duration, 3)}
        done.append(row)
        if not json_:
            print(f"{path}: {spoken.duration:.2f} s", flush=True)
    finish({"spoken": done, "failed": failed}, json_mode=json_, ok=not failed)


def _texts(given: list[str] | None, file: Path | None) -> list[str]:
    texts = list(given or [])
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--file {file} cannot be read as UTF-8 text: {error}.") from None
        texts += [line.strip() for line in lines if line.strip()]
    if not texts:
        raise UsageError("Nothing to say: give --text, or --file with one text a line.")
    return texts


def _own_options(settings: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """What the family takes beyond the options that all models have; it says what it knows."""
    found: dict[str, Any] = {}
    for item in settings:
        key, separator, text = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {item!r}: expected KEY=VALUE.")
        if key in known:
            raise UsageError(f"--set {key}: has an option of its own, --{key.replace('_', '-')}.")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


def _paths(out: Path, count: int) -> list[Path]:
    """One file, or numbered ones in a folder."""
    if out.suffix.lower() == ".wav":
        if count > 1:
            raise UsageError(
                f"--out {out} is one file, and there are {count} texts: name a folder instead."
            )
        return [out]
    if out.suffix:
        raise UsageError(f"--out {out}: only .wav files are written; name one, or a folder.")
    width = len(str(count))
    return [out / f"{number:0{width}d}.wav" for number in range(1, count + 1)]


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None

"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

from voicehub.cli.output import UsageError

JsonOption = Annotated[
    bool, typer.Option("--json", help="End with one JSON object on the last line.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, mps, or auto for the best there is.")
]


def require_folder(option: str, path: Path) -> None:
    """Make the folder that ``option`` names, before work whose result it is for.

    Raises:
        UsageError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(
            f"{option} {path} cannot be written: {error.strerror or error}. Name another folder."
        ) from None


def resolve_device(name: str) -> str:
    """``auto`` -> the best device of this machine; anything else as it is, if it is there.

    Raises:
        UsageError: there is no such device.
    """
    if name == "cpu":
        return name
    import torch

    if name != "auto":
        _require(torch, name)
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _require(torch: Any, name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(
            f"--device {name} cannot be used here ({why}). Use cpu, or auto for the best there is."
        ) from None

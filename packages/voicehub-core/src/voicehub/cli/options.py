"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

JsonOption = Annotated[
    bool, typer.Option("--json", help="End with one JSON object on the last line.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="cpu, cuda, mps, or auto for the best there is.")
]


def resolve_device(name: str) -> str:
    """``auto`` -> the best device of this machine; anything else is taken as it is."""
    if name != "auto":
        return name
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"

"""Sent to the host: tells what an interpreter has. Old ones must be able to read it, too."""

from __future__ import annotations

import sys

if sys.path and not sys.path[0]:  # the folder that we are in: nothing of it is to be imported
    del sys.path[0]

import json
import os
import re
from typing import Any, Dict  # noqa: UP035

PINNED = re.compile(
    r"(torch|torchaudio|torchvision|torchcodec|triton|pytorch[-_]triton|nvidia[-_].*)$"
)


def main() -> None:
    """Print one line: a marker and JSON."""
    found: Dict[str, Any] = {  # noqa: UP006
        "python": sys.executable,
        "version": "%d.%d.%d" % sys.version_info[:3],  # noqa: UP031
        "sites": [path for path in sys.path if _is_site(path)],
        "torch": None,
        "file": None,
        "cuda": False,
        "why": "",
        "device": None,
        "pins": {},
        "voicehub": {},
    }
    try:
        if sys.version_info >= (3, 10):  # noqa: UP036  an older one is of no use, whatever it has
            _look(found)
    except BaseException as error:
        # Whatever it is: whoever asked must hear of it, with what is known so far.
        said = str(error).strip().splitlines() or [""]
        found["why"] = type(error).__name__ + ": " + said[-1]
    print("voicehub-probe " + json.dumps(found))


def _is_site(path: str) -> bool:
    return path.endswith(("site-packages", "dist-packages"))


def _look(found: Dict[str, Any]) -> None:  # noqa: UP006
    from importlib import metadata

    for one in metadata.distributions():
        name = (one.metadata["Name"] or "").lower()
        kind = "pins" if PINNED.match(name) else "voicehub" if name.startswith("voicehub") else None
        if kind is not None:  # the first on the path is what would be imported
            found[kind].setdefault(name.replace("_", "-"), one.version)
    import torch

    found["torch"], found["file"] = torch.__version__, os.path.realpath(torch.__file__)
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        found["why"] = "this torch was built without CUDA"
        return
    if not torch.cuda.is_available():
        found["why"] = "torch sees no CUDA device; does `nvidia-smi` work there"
        return
    found["device"] = torch.cuda.get_device_name(0)
    square = torch.ones(64, 64, device="cuda:0")
    total = (square @ square).sum().item()
    found["cuda"] = total == 64.0**3
    if not found["cuda"]:
        found["why"] = "a matrix product on cuda:0 is wrong: %r" % total  # noqa: UP031


main()

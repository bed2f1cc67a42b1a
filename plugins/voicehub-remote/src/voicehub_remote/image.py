"""Which interpreter of the host has torch: the one that its image was made for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from voicehub_remote.errors import RemoteError
from voicehub_remote.places import quoted
from voicehub_remote.ssh import Remote

CANDIDATES = (
    "python3",
    "python",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/venv/bin/python",
    "/workspace/venv/bin/python",
)
OLDEST = (3, 10)
_MARK = "voicehub-probe {"


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter of the host told of itself.

    Attributes:
        python: its path there.
        version: of Python.
        sites: its folders of installed packages.
        torch, file: version of torch and where it lies; None where it cannot be imported.
        cuda: whether a matrix product on ``cuda:0`` was right.
        why: why it has no torch, or no CUDA.
        device: name of the first GPU.
        pins: versions of torch and what belongs to it, by name.
        voicehub: versions of our packages, by name.
    """

    python: str
    version: str = ""
    sites: tuple[str, ...] = ()
    torch: str | None = None
    file: str | None = None
    cuda: bool = False
    why: str = ""
    device: str | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    voicehub: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Interpreter:
        """From what ``on_host/probe.py`` prints."""
        known = {key: told[key] for key in cls.__dataclass_fields__ if key in told}
        return cls(**{**known, "sites": tuple(known.get("sites", ()))})

    @property
    def is_usable(self) -> bool:
        """Whether it is new enough and imports torch."""
        return self.torch is not None and self._release() >= OLDEST

    @property
    def constraints(self) -> list[str]:
        """Lines for pip that keep what belongs to torch as it is."""
        return [f"{name}=={version}" for name, version in sorted(self.pins.items())]

    def words(self) -> str:
        """For a person."""
        gpu = self.device or (f"no CUDA: {self.why}" if not self.cuda else "CUDA")
        return f"{self.python} (Python {self.version}, torch {self.torch}, {gpu})"

    def refusal(self) -> str:
        """Why it cannot be used."""
        if self.version and self._release() < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            return f"{self.python}: Python {self.version}, older than {oldest}"
        return f"{self.python}: {self.why or 'it ended without an answer'}"

    def _release(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


def probe_text() -> str:
    """The program that an interpreter tells of itself with."""
    source = resources.files("voicehub_remote.on_host") / "probe.py"
    return source.read_text(encoding="utf-8")


def find_image(remote: Remote, asked: str | None) -> Interpreter:
    """The interpreter that was asked for, or the best of those that images have.

    The best has a torch with working CUDA; else it is the first that has torch.

    Raises:
        RemoteError: none has torch; says why for each.
    """
    names = (asked,) if asked else CANDIDATES
    done = remote.run(
        _search(names), what="look for an interpreter with torch", stdin=probe_text(),
        stdin_shown=_PROBE_SHOWN,
    )  # fmt: skip
    if remote.dry_run:
        return Interpreter(asked or "python3", sites=("SITE_PACKAGES",))
    found = [Interpreter.parse(one) for one in _answers(done.out)]
    usable = [one for one in found if one.is_usable]
    if usable:
        return next((one for one in usable if one.cuda), usable[0])
    tried = "\n".join(f"  {one.refusal()}" for one in found)
    if asked:
        raise RemoteError(
            f"{remote.target}: --python {asked} has no torch that can be imported:\n"
            f"{tried or '  there is no such program.'}"
        )
    raise RemoteError(
        f"{remote.target}: no interpreter there imports torch. Name one with --python, or take an "
        f"image with PyTorch. Tried:\n{tried or '  ' + ', '.join(CANDIDATES) + ': none is there.'}"
    )


def ask(remote: Remote, python: str) -> Interpreter:
    """What one interpreter tells of itself.

    Raises:
        RemoteError: it does not run.
    """
    done = remote.run(
        f"exec {quoted(python)} -I -", what=f"run {python}", stdin=probe_text(),
        stdin_shown=_PROBE_SHOWN,
    )  # fmt: skip
    if remote.dry_run:
        return Interpreter(python)
    for answer in _answers(done.out):
        return Interpreter.parse(answer)
    raise RemoteError(f"{remote.target}: {python} ran and said nothing of itself.")


_PROBE_SHOWN = (
    "python3 -c 'from voicehub_remote.image import probe_text as p; print(p())'"  # what we send
)


def _search(names: tuple[str, ...]) -> str:
    script = resources.files("voicehub_remote.on_host") / "find_image.sh"
    return f"set -- {shlex.join(names)}\n{script.read_text(encoding='utf-8')}"


def _answers(text: str) -> list[dict[str, Any]]:
    lines = [line for line in text.splitlines() if line.startswith(_MARK)]
    return [json.loads(line[len(_MARK) - 1 :]) for line in lines]

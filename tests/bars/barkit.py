"""Bars: measured promises that take longer than a test may.

A bar is a function in a file ``tests/bars/bar_*.py``::

    from barkit import Outcome, bar

    @bar("quickstart", "WER <= 10 % on unseen sentences")
    def quickstart(scratch: Path) -> Outcome:
        ...
        return Outcome(figure="4.2 %", passed=True)

It gets an empty directory of its own, raises ``Skipped`` with a reason where it cannot be measured
here, and any other exception counts as failed. ``nox -s bars -- NAME`` runs some by name.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Skipped(Exception):
    """This bar cannot be measured on this machine; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """What was measured.

    Attributes:
        figure: the measured values as text, short.
        passed: whether they reach the bar.
        extra: further figures for ``--json``.
    """

    figure: str
    passed: bool
    extra: dict[str, Any] | None = None


Measure = Callable[[Path], Outcome]


@dataclass(frozen=True)
class Bar:
    """A named promise and how it is measured."""

    name: str
    promise: str
    measure: Measure


@dataclass(frozen=True)
class Verdict:
    """A bar that was run."""

    bar: Bar
    verdict: str  # "pass", "FAIL" or "skip"
    figure: str
    seconds: float
    extra: dict[str, Any] | None = None

    @property
    def line(self) -> str:
        return f"{self.verdict:4}  {self.bar.name}: {self.figure}  [{self.bar.promise}]"

    def as_dict(self) -> dict[str, Any]:
        return {
            "bar": self.bar.name,
            "promise": self.bar.promise,
            "figure": self.figure,
            "verdict": self.verdict.lower(),
            "seconds": round(self.seconds, 1),
            **({"extra": self.extra} if self.extra else {}),
        }


_REGISTRY: dict[str, Bar] = {}


def bar(name: str, promise: str) -> Callable[[Measure], Measure]:
    """Register a function as a bar."""

    def register(measure: Measure) -> Measure:
        if name in _REGISTRY:
            raise ValueError(f"two bars are named {name!r}")
        _REGISTRY[name] = Bar(name, promise, measure)
        return measure

    return register


def load_bars(directory: Path) -> dict[str, Bar]:
    """Import every ``bar_*.py`` of a directory and return the bars they register, by name."""
    _REGISTRY.clear()
    for path in sorted(directory.glob("bar_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    return dict(_REGISTRY)


def run_bar(chosen: Bar, *, keep: bool = False) -> Verdict:
    """Measure one bar in a fresh directory; with ``keep`` the directory stays if it failed."""
    scratch = Path(tempfile.mkdtemp(prefix=f"bar-{chosen.name}-"))
    began = time.perf_counter()
    extra = None
    try:
        outcome = chosen.measure(scratch)
        verdict, figure = ("pass" if outcome.passed else "FAIL"), outcome.figure
        extra = outcome.extra
    except Skipped as reason:
        verdict, figure = "skip", str(reason)
    except Exception as error:
        traceback.print_exc()
        first_line = (str(error).splitlines() or [""])[0]
        verdict, figure = "FAIL", f"{type(error).__name__}: {first_line[:120]}"
    if verdict == "FAIL" and keep:
        figure += f" (left in {scratch})"
    else:
        shutil.rmtree(scratch, ignore_errors=True)
    return Verdict(chosen, verdict, figure, time.perf_counter() - began, extra)


def table(verdicts: Sequence[Verdict]) -> str:
    """All verdicts, one a line, columns aligned."""
    rows = [("bar", "figure", "verdict", "seconds")]
    rows += [(v.bar.name, v.figure, v.verdict, f"{v.seconds:.0f}") for v in verdicts]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def voicehub(*arguments: str | os.PathLike[str], cwd: Path | None = None) -> dict[str, Any]:
    """Run ``voicehub … --json`` with the interpreter of this run and return its JSON.

    Raises:
        RuntimeError: it failed; the message holds the end of its output.
    """
    program = Path(sys.executable).parent / "voicehub"
    command = [str(program), *(os.fspath(argument) for argument in arguments), "--json"]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = (result.stderr + result.stdout).strip()[-2000:]
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}: {said}")
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def shared_data(name: str) -> Path:
    """A folder of the recordings that lie beside the repository.

    Raises:
        Skipped: it is not there.
    """
    base = Path(os.environ.get("VOICEHUB_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not (base / name).is_dir():
        raise Skipped(f"no {name} in {base} (VOICEHUB_SHARED_DATA names another folder)")
    return base / name

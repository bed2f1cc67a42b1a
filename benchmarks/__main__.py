"""Run every side-by-side measurement and write ``results.json``: ``python benchmarks [NAME ...]``.

One after the other, each in a process of its own, in the order of the catalogue; within each the
systems are interleaved. Cases that are named replace theirs in the file, all others stay. A case
whose peers are not installed, or whose recordings are not there, is left out and says why.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import machine, results
from harness.catalogue import CATALOGUE, RIVALS, Entry, by_name

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"


class LeftOut(Exception):
    """The case cannot be measured here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a case failed, 2 for wrong use."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{entry.name:20}{entry.title}" for entry in CATALOGUE))
        return 0
    entries = by_name()
    unknown = [name for name in options.names if name not in entries]
    if unknown:
        print(f"no case {', '.join(unknown)}; there are {', '.join(entries)}", file=sys.stderr)
        return 2
    path = options.results or (_quick_file() if options.quick else RESULTS)
    chosen = [entries[name] for name in options.names] or list(CATALOGUE)
    failed = run(chosen, path, quick=options.quick, whole=not options.names)
    print(f"written to {path}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="cases; all when none is named")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds of little work, into a file elsewhere"
    )
    parser.add_argument("--results", type=Path, help="instead of benchmarks/results.json")
    return parser


def _quick_file() -> Path:
    return Path(tempfile.gettempdir()) / "voicehub-bench-quick.json"


def run(chosen: Sequence[Entry], path: Path, *, quick: bool, whole: bool) -> list[str]:
    """Measure, and write after every case; returns the names of those that failed."""
    cases, left_out = ({}, {}) if whole else _earlier(path, quick)
    failed = []
    for entry in chosen:
        cases.pop(entry.name, None)
        left_out.pop(entry.name, None)
        print(f"{entry.name}: {entry.title}", flush=True)
        try:
            cases[entry.name] = measure(entry, quick=quick)
            print(f"  {cases[entry.name].seconds:.0f} s", flush=True)
        except LeftOut as reason:
            left_out[entry.name] = str(reason)
            print(f"  left out: {reason}", flush=True)
        except RuntimeError as error:
            left_out[entry.name] = "it failed"
            failed.append(entry.name)
            print(f"  failed: {error}", flush=True)
        results.write(_document(cases, left_out, quick), path)
    return failed


def _earlier(path: Path, quick: bool) -> tuple[dict[str, results.Case], dict[str, str]]:
    if not path.exists():
        return {}, {}
    found = results.read(path)
    if found.quick != quick:
        raise SystemExit(f"{path} holds {'trial' if found.quick else 'real'} figures; name another")
    return {case.name: case for case in found.cases}, dict(found.left_out)


def _document(
    cases: Mapping[str, results.Case], left_out: Mapping[str, str], quick: bool
) -> results.Results:
    names = [entry.name for entry in CATALOGUE]
    return results.Results(
        quick=quick,
        machine=machine.describe(),
        versions=machine.versions(RIVALS),
        cases=[cases[name] for name in names if name in cases],
        left_out={name: left_out[name] for name in names if name in left_out},
    )


def measure(entry: Entry, *, quick: bool) -> results.Case:
    """Run one script and read what it prints.

    Raises:
        LeftOut: something it compares with, or its data, is not here.
        RuntimeError: it failed; the message holds the end of its output.
    """
    missing = [name for name in entry.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise LeftOut(f"{', '.join(missing)} not installed")
    given = list(entry.quick if quick else entry.arguments)
    if entry.data is not None:
        given.insert(0, str(_recordings(entry.data)))
    before, began = machine.load(), time.perf_counter()
    found = _run_script(HERE / entry.script, given)
    seconds = time.perf_counter() - began
    measures, facts = entry.convert(found)
    return results.Case(
        name=entry.name,
        title=entry.title,
        script=entry.script,
        how=entry.how,
        measures=measures,
        facts={
            name: value if isinstance(value, str) else results.rounded(value)
            for name, value in facts.items()
        },
        measured=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        seconds=round(seconds, 1),
        load=results.Load(before=before, after=machine.load(), cores=os.cpu_count() or 1),
    )


def _recordings(name: str) -> Path:
    """Recordings that lie beside the repository, as for the bars."""
    base = Path(os.environ.get("VOICEHUB_SHARED_DATA", HERE.parents[1] / "shared" / "data"))
    if not (base / name).is_dir():
        raise LeftOut(f"no {name} in VOICEHUB_SHARED_DATA or beside the repository")
    return base / name


def _run_script(script: Path, arguments: Sequence[str]) -> dict[str, Any]:
    # Threads that wait by spinning slow a busy machine down; `voicehub` sets the same.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    with tempfile.TemporaryDirectory() as scratch:
        result = subprocess.run(
            [sys.executable, str(script), *arguments, "--json"],
            capture_output=True, text=True, check=False, cwd=scratch, env=environment,
        )  # fmt: skip
    if result.returncode != 0:
        raise RuntimeError((result.stderr + result.stdout).strip()[-2000:])
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    sys.exit(main())

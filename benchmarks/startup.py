"""CPU time and modules of starting VoiceHub: ``import voicehub``, ``--help`` and ``plugins``.

What other training systems take to be imported is measured beside it, where they are installed.

Each case runs in fresh interpreters, one of each in every round; the child reports
``time.process_time()`` and ``sys.modules`` when it is done, so that waiting for the disk or for
other programs does not count.

Run it alone with ``python benchmarks/startup.py [--rounds 9 --json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from harness.interleaving import interleave

CASES: dict[str, str] = {
    "empty interpreter": "",
    "import voicehub": "import voicehub",
    "voicehub --help": "from voicehub.cli.app import main; run(main, '--help')",
    "voicehub plugins": "from voicehub.cli.app import main; run(main, 'plugins')",
}
"""What each case executes; ``run`` calls a console script's function with arguments."""

RIVALS: dict[str, str] = {
    f"import {name}": f"import {module}"
    for name, module in {
        "torch": "torch",
        "transformers.Trainer": "transformers; transformers.Trainer",
        "lightning": "lightning",
        "speechbrain": "speechbrain",
    }.items()
}
"""Other systems, imported as far as it takes to name their trainers."""

HEAVY: tuple[str, ...] = (
    "torch",
    "numpy",
    "transformers",
    "hydra",
    "omegaconf",
    "soundfile",
    "safetensors",
)
"""Modules that none of the cases may load; plugins are found by their own names."""

_CHILD = """
import sys

def run(main, *arguments):
    sys.argv[:] = ["voicehub", *arguments]
    try:
        status = main()
    except SystemExit as stop:
        status = stop.code
    if status not in (None, 0):
        raise RuntimeError(f"voicehub {' '.join(arguments)} ended with {status!r}")

# the case
loaded = sorted(sys.modules)
import json, time
sys.stdout.flush()
sys.stderr.write("\\n" + json.dumps({"cpu": time.process_time(), "modules": loaded}))
"""


@dataclass(frozen=True)
class Start:
    """One case: seconds of CPU by round, and every module that was loaded at its end."""

    name: str
    cpu: tuple[float, ...]
    modules: tuple[str, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)

    def heavy(self, plugins: Sequence[str] = ()) -> list[str]:
        """The loaded modules that should not be."""
        return [name for name in (*HEAVY, *plugins) if name in self.modules]


def measure(name: str, rounds: int = 1) -> Start:
    """Run one case in fresh interpreters.

    Raises:
        RuntimeError: the command failed; its error output is in the message.
    """
    return measure_all([name], rounds)[0]


def measure_all(names: Sequence[str], rounds: int) -> list[Start]:
    """Run cases in fresh interpreters, all of them in every round.

    Raises:
        RuntimeError: a command failed; its error output is in the message.
    """
    modules: dict[str, tuple[str, ...]] = {}

    def once(name: str) -> float:
        report = _run_child(name)
        modules[name] = tuple(report["modules"])
        return float(report["cpu"])

    works = {name: partial(once, name) for name in names}
    cpu = interleave(works, rounds, warm_up=False)
    return [Start(name, tuple(cpu[name]), modules[name]) for name in names]


def rivals() -> list[str]:
    """Those that are installed."""
    return [name for name in RIVALS if find_spec(name.split()[1].partition(".")[0]) is not None]


def _run_child(name: str) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD.replace("# the case", {**CASES, **RIVALS}[name])],
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise RuntimeError(f"{name!r} failed: {child.stderr.strip()[-1500:]}")
    report: dict[str, Any] = json.loads(child.stderr.splitlines()[-1])
    return report


def plugin_modules() -> list[str]:
    """Import names of the installed distributions that plug into VoiceHub.

    The core registers losses of its own the same way, but it is what is started here.
    """
    from importlib.metadata import entry_points

    found = {entry.value for entry in entry_points(group="voicehub.plugin_api")}
    return sorted(found - {"voicehub"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    plugins = plugin_modules()
    starts = measure_all([*CASES, *rivals()], options.rounds)
    empty = starts[0].median
    print(f"{'case':20}{'CPU, ms':>10}{'over empty':>12}{'modules':>9}  heavy modules loaded")
    for start in starts:
        print(
            f"{start.name:20}{1e3 * start.median:10.1f}{1e3 * (start.median - empty):12.1f}"
            f"{len(start.modules):9d}  "
            f"{', '.join(start.heavy(plugins)) or '-' if start.name in CASES else ''}"
        )
    if options.json:
        cases = {
            start.name: {
                "cpu_seconds": round(start.median, 4),
                "over_empty_seconds": round(start.median - empty, 4),
                "modules": len(start.modules),
                "heavy": start.heavy(plugins),
            }
            for start in starts
        }
        print(json.dumps({"rounds": options.rounds, "cases": cases}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Start-up: nothing heavy is loaded, and the answer comes at once."""

from __future__ import annotations

import sys
from pathlib import Path

from barkit import ROOT, Outcome, bar

sys.path.insert(0, str(ROOT / "benchmarks"))

import startup

IMPORT_SECONDS = 0.060
COMMAND_SECONDS = 0.5


@bar("startup", "import voicehub < 60 ms over an empty interpreter, --help and plugins < 0.5 s CPU")
def start_up(scratch: Path) -> Outcome:
    plugins = startup.plugin_modules()
    starts = {name: startup.measure(name, rounds=7) for name in startup.CASES}
    empty = starts["empty interpreter"].median
    import_seconds = starts["import voicehub"].median - empty
    commands = {name: s.median for name, s in starts.items() if name.startswith("voicehub ")}
    heavy = sorted({module for start in starts.values() for module in start.heavy(plugins)})
    figure = f"import {1e3 * import_seconds:.0f} ms, " + ", ".join(
        f"{name.removeprefix('voicehub ')} {seconds:.2f} s" for name, seconds in commands.items()
    )
    if heavy:
        figure += f", loads {', '.join(heavy)}"
    passed = (
        import_seconds < IMPORT_SECONDS
        and all(seconds < COMMAND_SECONDS for seconds in commands.values())
        and not heavy
    )
    return Outcome(figure, passed)

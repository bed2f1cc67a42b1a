"""Run bars: ``python tests/bars [NAME …] [--list] [--json] [--keep]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from barkit import load_bars, run_bar, table  # noqa: E402


def main(arguments: Sequence[str] | None = None, directory: Path = HERE) -> int:
    """Exit code 0 if no bar failed, 1 if one did, 2 for a bar that does not exist."""
    parser = argparse.ArgumentParser(description="Measure the bars of this project.")
    parser.add_argument("names", nargs="*", help="all of them when none is named")
    parser.add_argument("--list", action="store_true", help="print the bars and stop")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep the files of failed bars")
    options = parser.parse_args(arguments)
    bars = load_bars(directory)
    for name in options.names:
        if name not in bars:
            near = get_close_matches(name, bars, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(bars)}."
            print(f"There is no bar named {name!r}.{hint}", file=sys.stderr)
            return 2
    if options.list:
        print("\n".join(f"{bar.name:16} {bar.promise}" for bar in bars.values()))
        return 0
    verdicts = []
    for name in options.names or bars:
        print(f"...   {name}: {bars[name].promise}", flush=True)
        verdicts.append(run_bar(bars[name], keep=options.keep))
        print(verdicts[-1].line, flush=True)
    print(f"\n{table(verdicts)}")
    failed = [verdict.bar.name for verdict in verdicts if verdict.verdict == "FAIL"]
    if options.json:
        print(json.dumps({"ok": not failed, "bars": [v.as_dict() for v in verdicts]}))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

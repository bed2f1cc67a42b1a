"""Write docs/benchmarks.md and its pictures from benchmarks/results.json.

``nox -s bench`` calls it after measuring; ``--check`` tells whether page, pictures and figures
agree, and a test does so in every run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "tools"))

from benchmark_charts import bar_chart  # noqa: E402
from harness.results import OURS, Case, Measure, Results, Row, read  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = "images/benchmarks"

_INTRODUCTION = """\
# Benchmarks

<!-- Written by tools/benchmarks_page.py from benchmarks/results.json; do not edit by hand. -->

Every figure here compares systems that ran in turn, one after the other in every round, in one
process where that is possible. Values are medians over the rounds. **Only the ratios carry over to
another machine**; compare the values of one table with each other and not with those of another.

```bash
python -m nox -s bench                       # everything, then this page
python -m nox -s bench -- --quick            # a trial of every script, into a file elsewhere
python -m nox -s bench -- vits-step resume   # some cases; the others keep their figures
```

What is compared with is installed by `nox -s bench`, never with VoiceHub. Each script in
`benchmarks/` also runs alone and prints a table.
"""


def files_of(results: Results) -> dict[str, str]:
    """Text of the page and of every picture, by path below ``docs/``."""
    files: dict[str, str] = {}
    parts = [_INTRODUCTION, _machine(results), _overview(results)]
    parts += [_case(case, files) for case in results.cases]
    if results.left_out:
        parts.append("## Left out\n")
        parts.append("".join(f"- {name}: {why}\n" for name, why in results.left_out.items()))
    files["benchmarks.md"] = "\n".join(parts)
    return files


def _machine(results: Results) -> str:
    machine, versions = results.machine, results.versions
    words = (
        f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['memory']} of "
        f"memory, {machine['system']}, Python {machine['python']}, with "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    )
    return f"## The machine\n\n{words}\n\n{_busy(results)}"


def _busy(results: Results) -> str:
    """Say how much else ran: a load over one process means that others took part of the cores."""
    loads = [load for case in results.cases for load in (case.load.before, case.load.after)]
    if not loads:
        return ""
    cores = results.cases[0].load.cores
    return (
        f"Other programs ran beside the measurements: between {min(loads):.1f} and "
        f"{max(loads):.1f} processes ran or waited for one of the {cores} cores, this one among "
        f"them, which ran with niceness {results.machine['niceness']}. CPU time hardly feels that; "
        "where wall time is given, ratios do less than values.\n"
    )


def _overview(results: Results) -> str:
    lines = [
        "## In short\n",
        "Our figure over that of the best other system in the same run: below 1 is faster or "
        "smaller, and for what should be large, throughput, above 1 is more.\n",
        "| case | quantity | best other | ours / best other |",
        "|---|---|---|--:|",
    ]
    for case in results.cases:
        link = f"[{case.title}](#{anchor(case.title)})"
        for measure in case.measures:
            pair = best_pair(measure)
            if pair is not None:
                ours, other = pair
                share = f"{ours.value / other.value:.2f}" if other.value else "-"
                lines.append(f"| {link} | {measure.quantity} | {other.system} | {share} |")
                link = ""  # once a case
    return "\n".join(lines) + "\n"


def best_pair(measure: Measure) -> tuple[Row, Row] | None:
    """Our best row and the best of the others; None where one side is missing or is no rival."""
    best = max if measure.better == "higher" else min
    ours = [row for row in measure.rows if is_ours(row) and not _is_context(row)]
    others = [row for row in measure.rows if not is_ours(row) and not _is_context(row)]
    if not ours or not others:
        return None
    return best(ours, key=lambda row: row.value), best(others, key=lambda row: row.value)


def is_ours(row: Row) -> bool:
    """Whether the row is one of our systems."""
    return row.system.startswith(OURS)


def _is_context(row: Row) -> bool:
    """Rows that show what part of a figure is common to all, and are no system."""
    common = ("empty interpreter", "import torch")
    return row.system in common or row.system.endswith(", step 0")


def _case(case: Case, files: dict[str, str]) -> str:
    lines = [f"## {case.title}\n", f"{case.how}\n"]
    for number, measure in enumerate(case.measures, 1):
        picture = f"{PICTURES}/{case.name}-{number}.svg"
        files[picture] = bar_chart(measure)
        lines += [f"### {_capital(measure.quantity)}\n", f"![{_words(measure)}]({picture})\n"]
        lines.append(_table(measure))
    if case.facts:
        lines.append("| | |\n|---|--:|")
        lines += [f"| {name} | {_number(value)} |" for name, value in case.facts.items()]
        lines.append("")
    lines.append(
        f"`python benchmarks/{case.script}`, {case.measured}, {case.seconds:.0f} s, load "
        f"{case.load.before:.1f} to {case.load.after:.1f} on {case.load.cores} cores.\n"
    )
    return "\n".join(lines)


def anchor(title: str) -> str:
    """The fragment that markdown gives to a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def _table(measure: Measure) -> str:
    lines = [f"| system | {measure.unit} | ratio | rounds from, to |", "|---|--:|--:|--:|"]
    for row in measure.rows:
        name = f"**{row.system}**" if is_ours(row) else row.system
        span = f"{_number(min(row.rounds))}, {_number(max(row.rounds))}" if row.rounds else ""
        lines.append(f"| {name} | {_number(row.value)} | {row.ratio:.3g} | {span} |")
    return "\n".join(lines) + "\n"


def _words(measure: Measure) -> str:
    """What a reader who does not see the picture is told."""
    values = ", ".join(f"{row.system} {_number(row.value)}" for row in measure.rows)
    return f"{measure.quantity} in {measure.unit}: {values}"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def stale(files: dict[str, str], docs: Path) -> list[str]:
    """Paths below ``docs`` that are missing, differ, or should not be there."""
    wrong = []
    for name, text in files.items():
        path = docs / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(name)
    folder = docs / PICTURES
    kept = {path.relative_to(docs).as_posix() for path in folder.glob("*.svg")}
    return wrong + sorted(kept - set(files))


def write(files: dict[str, str], docs: Path) -> None:
    """Write all files, and remove pictures that no case draws any more."""
    for path in (docs / PICTURES).glob("*.svg"):
        if path.relative_to(docs).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where ``--check`` finds files that do not agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell whether they agree")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=PAGE.parent)
    options = parser.parse_args(arguments)
    files = files_of(read(options.results))
    if options.check:
        wrong = stale(files, options.docs)
        if wrong:
            print(f"out of date: {', '.join(wrong)}; run python tools/benchmarks_page.py")
        return 1 if wrong else 0
    write(files, options.docs)
    print(f"{len(files)} files written to {options.docs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

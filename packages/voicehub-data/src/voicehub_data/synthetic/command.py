"""``voicehub data synthesize``: the synthetic corpus from a shell.

The typer application of this package registers it with::

    from voicehub_data.synthetic.command import synthesize
    app.command("synthesize")(synthesize)
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.output import finish
from voicehub_data.synthetic.corpus import CorpusSummary, build_corpus


def synthesize(
    out: Annotated[Path, typer.Argument(help="Directory to create.")],
    minutes: Annotated[
        float, typer.Option(help="Minutes of training audio; each evaluation split adds 1/8.")
    ] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of sentences, voices and levels.")] = 0,
    overwrite: Annotated[
        bool, typer.Option(help="Replace a synthetic corpus of other settings.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on the last line.")
    ] = False,
) -> None:
    """Speak a small English corpus with espeak-ng: digit strings and household commands."""
    summary = build_corpus(out, minutes=minutes, seed=seed, overwrite=overwrite)
    finish(_as_json(summary), json_mode=json_output, human=_table(summary))


def _table(summary: CorpusSummary) -> str:
    lines = [f"{'Found' if summary.reused else 'Wrote'} {summary.directory}"]
    for split, path in summary.manifests.items():
        minutes_spoken = summary.seconds[split] / 60.0
        lines.append(f"  {path.name:22} {summary.rows[split]:5d} rows {minutes_spoken:6.1f} min")
    lines.append(f"  digest {summary.digest}")
    return "\n".join(lines)


def _as_json(summary: CorpusSummary) -> dict[str, object]:
    return {
        "directory": str(summary.directory),
        "reused": summary.reused,
        "manifests": {split: str(path) for split, path in summary.manifests.items()},
        "rows": summary.rows,
        "seconds": summary.seconds,
        "digest": summary.digest,
    }

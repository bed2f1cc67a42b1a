"""``voicehub data truecaser``: learn from cased text how words are spelled, and apply it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.errors import ConfigurationError, DataError

app = typer.Typer(help="Restore capitals in text of one case.", no_args_is_help=True)

_MANIFESTS = (".jsonl", ".csv", ".tsv")


@app.command("fit")
def fit(
    texts: Annotated[
        list[Path],
        typer.Argument(help="Cased text: .txt, one sentence or paragraph a line, or manifests."),
    ],
    out: Annotated[Path, typer.Option("--out", help="JSON file to write.")],
    min_count: Annotated[
        int, typer.Option(min=1, help="Leave out spellings seen fewer times.")
    ] = 1,
    held_out: Annotated[
        int, typer.Option(min=0, help="Measure on every N-th text, left out of the fit; 0: none.")
    ] = 0,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
    json_: JsonOption = False,
) -> None:
    """Count spellings, alone and beside their neighbours, and write them as JSON."""
    from voicehub_data.text.casing import measure_casing
    from voicehub_data.text.truecaser import fit_truecaser

    if out.exists() and not overwrite:
        raise DataError(f"{out}: the file exists; choose another name or pass --overwrite.")
    if held_out == 1:
        raise ConfigurationError("--held-out 1 would leave nothing to learn from; give 2 or more.")
    lines = [line for path in texts for line in _lines(path)]
    apart = lines[held_out - 1 :: held_out] if held_out else []
    learnt = [line for i, line in enumerate(lines) if not held_out or (i + 1) % held_out]
    truecaser = fit_truecaser(learnt, min_count=min_count)
    result: dict[str, object] = {
        "output": out,
        "texts": truecaser.texts,
        "tokens": truecaser.tokens,
        "skipped": truecaser.skipped,
        "words": len(truecaser.words),
        "sha256": truecaser.fingerprint,
    }
    shown = [
        f"read {truecaser.texts:,} texts with {truecaser.tokens:,} words; {truecaser.skipped:,} in "
        "capitals throughout were left out",
        f"{len(truecaser.words):,} words are written with capitals, always or at times",
    ]
    if apart:
        ours, baseline = measure_casing(apart, truecaser)
        result |= {"held_out": {"truecaser": ours.as_dict(), "first_words": baseline.as_dict()}}
        shown.append(
            f"held out {len(apart):,} texts: {ours.describe()}; first words alone: "
            f"{baseline.describe()}"
        )
    truecaser.save(out)
    shown.append(f"wrote {out}")
    finish(result, json_mode=json_, human="\n".join(shown))


@app.command("apply")
def apply(
    truecaser: Annotated[Path, typer.Argument(help="What `fit` wrote.")],
    texts: Annotated[list[str], typer.Argument(help="Texts to case.")],
    json_: JsonOption = False,
) -> None:
    """Show what a truecaser makes of texts."""
    from voicehub_data.text.truecaser import Truecaser

    cased = [Truecaser.load(truecaser)(text) for text in texts]
    finish({"texts": cased}, json_mode=json_, human="\n".join(cased))


def _lines(path: Path) -> Iterator[str]:
    if path.suffix.lower() in _MANIFESTS or path.is_dir():
        from voicehub_data.manifest import read_manifest

        yield from (row.text for row in read_manifest(path) if row.text.strip())
        return
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}).") from error
    yield from (line for line in content.splitlines() if line.strip())

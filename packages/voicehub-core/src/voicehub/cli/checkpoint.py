"""``voicehub checkpoint``: look at, verify and convert what training saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub.cli.tables import table
from voicehub.errors import CheckpointError

app = typer.Typer(help="Look at, verify and convert checkpoints.", no_args_is_help=True)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="A checkpoint, or a run: its newest one.")
]


@app.command()
def show(path: PathArgument, json_: JsonOption = False) -> None:
    """What a checkpoint is: its step, model, files. Reads the manifest, hashes nothing else."""
    from voicehub.checkpoints.manifest import read_manifest

    checkpoint = _resolved(path)
    manifest = read_manifest(checkpoint)
    sizes = {name: entry["size"] for name, entry in manifest["file_integrity"].items()}
    facts: dict[str, Any] = {
        "path": checkpoint,
        "format": manifest["format_version"],
        "step": manifest["global_step"],
        "model type": manifest.get("model_type"),
        "adapter": (manifest.get("adapter") or {}).get("class"),
        "optimizers": ", ".join(manifest.get("optimizer_names") or ()),
        "strategy": manifest.get("strategy"),
        "run": manifest.get("run_id"),
    }
    lines = [f"{name:<11} {value}" for name, value in facts.items() if value not in (None, "")]
    lines += ["", table(("file", "bytes"), sorted(sizes.items()))]
    lines.append(f"{sum(sizes.values()):,} bytes in {len(sizes)} files")
    result = {"path": checkpoint, "manifest": manifest}
    finish(result, json_mode=json_, human="\n".join(lines))


@app.command()
def verify(
    path: PathArgument,
    all_: Annotated[
        bool, typer.Option("--all", help="Every complete checkpoint of the run.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Check sizes and SHA-256 digests of every file; a damaged one is named."""
    from voicehub.checkpoints.layout import list_checkpoints

    found = list_checkpoints(path) if all_ else []
    results = {str(item): _verdict(item) for item in found or [_resolved(path)]}
    bad = {name: verdict for name, verdict in results.items() if verdict}
    lines = [f"{'damaged' if verdict else 'sound':<8} {name}" for name, verdict in results.items()]
    lines += ["", *bad.values()] if bad else []
    checked = [{"path": name, "sound": not why, "reason": why} for name, why in results.items()]
    finish({"checkpoints": checked}, json_mode=json_, human="\n".join(lines), ok=not bad)


@app.command()
def convert(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A checkpoint of format 1, 2 or 3.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the result.")],
    json_: JsonOption = False,
) -> None:
    """Read an older checkpoint's weights for a warm start. It cannot be resumed exactly."""
    from voicehub.cli.legacy_checkpoint import convert_checkpoint

    if not path.is_dir():
        raise UsageError(f"{path} is no directory.")
    conversion = convert_checkpoint(path, output)
    lines = [
        f"Read {conversion.tensors} tensors of format {conversion.source_format}, "
        f"step {conversion.step:,}.",
        *(f"left out: {item}" for item in conversion.left_out),
        f"wrote   {conversion.path}",
        "",
        "These are weights for a warm start (Trainer.load_weights); optimizer and position in "
        "the data are not part of them.",
    ]
    finish(conversion.as_dict(), json_mode=json_, human="\n".join(lines))


def _resolved(path: Path) -> Path:
    """A checkpoint itself, or the newest complete one of a run directory.

    Raises:
        UsageError: there is neither.
    """
    from voicehub.checkpoints.layout import MANIFEST_FILE, checkpoint_step, latest_checkpoint

    if not path.is_dir():
        what = "is no directory" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}.")
    if (path / MANIFEST_FILE).exists() or checkpoint_step(path) is not None:
        return path
    newest = latest_checkpoint(path)
    if newest is None:
        raise UsageError(f"{path} is no checkpoint, and holds no complete one.")
    return newest


def _verdict(checkpoint: Path) -> str:
    """Why a checkpoint cannot be used; empty when it is sound."""
    from voicehub.checkpoints.manifest import read_manifest, verify_files

    try:
        verify_files(checkpoint, read_manifest(checkpoint))
    except CheckpointError as error:
        return str(error)
    return ""

"""``voicehub ema``: averages of a finished run, with a width chosen now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voicehub.cli.options import JsonOption, require_folder
from voicehub.cli.output import UsageError, finish
from voicehub.cli.tables import table

if TYPE_CHECKING:
    from voicehub.trainer.posthoc_synthesis import SynthesisPlan

app = typer.Typer(help="Averaged weights with a width chosen after training.", no_args_is_help=True)

RunOption = Annotated[Path, typer.Option("--run", help="A run with training.posthoc_ema=true.")]


@app.command("list")
def list_(run: RunOption, json_: JsonOption = False) -> None:
    """What a run has stored: the updates of each snapshot, and its averages."""
    from voicehub.trainer.posthoc_synthesis import own_snapshots

    run_id, snapshots = own_snapshots(_directory(run))
    rows = [
        (
            snapshot.step,
            ", ".join(f"{average.sigma_rel:g}" for average in snapshot.averages),
            sum(average.size for average in snapshot.averages),
            snapshot.directory.name,
        )
        for snapshot in snapshots
    ]
    found = [
        {"step": step, "sigma_rels": [a.sigma_rel for a in snapshot.averages], "bytes": size}
        for (step, _, size, _), snapshot in zip(rows, snapshots, strict=True)
    ]
    lines = [table(("updates", "relative widths", "bytes", "directory"), rows)]
    lines.append(f"\nrun {run_id}")
    result = {"run": run, "run_id": run_id, "snapshots": found}
    finish(result, json_mode=json_, human="\n".join(lines))


@app.command()
def synthesize(
    run: RunOption,
    sigma_rel: Annotated[
        float, typer.Option("--sigma-rel", help="Width of the average as a share of the run.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Directory of the model that is written.")],
    step: Annotated[
        int | None, typer.Option(min=1, help="Average up to this update; the last one stored.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the profile cannot be met within 5 %.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Write a model with averaged weights of any width, from what the run has stored."""
    from voicehub.models.artifact import FINAL_MODEL
    from voicehub.trainer.posthoc_artifact import write_averaged_artifact
    from voicehub.trainer.posthoc_synthesis import plan_synthesis, synthesised

    run = _directory(run)
    base = run / FINAL_MODEL
    if not base.is_dir():
        raise UsageError(
            f"{base} does not exist: it is what the averages are put into. Let the run end first "
            "(resume=auto)."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is there already. Name a directory that does not exist yet.")
    plan = plan_synthesis(run, sigma_rel, step=step, force=force)
    require_folder("--out", out.parent)  # the model comes there as a whole
    write_averaged_artifact(base, out, dict(synthesised(plan)), plan.describe())
    result = {"model": out, **plan.describe()}
    finish(result, json_mode=json_, human=f"{_text(plan)}\nmodel   {out}")


def _text(plan: SynthesisPlan) -> str:
    found = plan.combination
    rows: list[tuple[Any, ...]] = [
        (term.snapshot.step, f"{term.average.sigma_rel:g}", f"{term.weight:+.6f}")
        for term in plan.terms
        if term.weight != 0.0
    ]
    lines = [table(("updates", "width", "weight"), rows), ""]
    if plan.is_exact:
        lines.append("It is a stored average itself: exact.")
    else:
        lines.append(
            f"sigma_rel {plan.sigma_rel:g} over {plan.step:,} updates: profile residual "
            f"{found.residual:.2%} ({found.normalised_residual:.2%} once the weights, whose sum "
            f"was {found.total:.6f}, add up to 1)."
        )
    return "\n".join(lines)


def _directory(run: Path) -> Path:
    if not run.is_dir():
        raise UsageError(f"--run {run} {'is no directory' if run.exists() else 'does not exist'}.")
    return run

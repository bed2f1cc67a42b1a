"""``voicehub sample``: prompts to audio, with the weights of a run that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import DeviceOption, JsonOption, require_folder
from voicehub.cli.output import UsageError, finish, print_error, say


def sample(
    prompts: Annotated[
        Path,
        typer.Option(help="What to make: .jsonl (text, speaker, features …), or a text a line."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for audio, pictures and the page.")],
    run: Annotated[
        Path | None, typer.Option("--run", help="A finished run: its model and its settings.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="A model in place of the run's own.")
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", help="raw or ema: which model of the run.")
    ] = "raw",
    sigma_rel: Annotated[
        float | None,
        typer.Option("--sigma-rel", help="Averaged weights of this width, made for the purpose."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=1, help="With --sigma-rel: average up to this update.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --sigma-rel: also where the profile is off.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="A prompt's seed is made of this and its id.")
    ] = 0,
    device: DeviceOption = "auto",
    json_: JsonOption = False,
) -> None:
    """Make prompts into audio, with a contact sheet. One that fails is named; others are made."""
    from voicehub.cli.sampling import ChosenModel, open_model
    from voicehub.models.sampling import read_prompts
    from voicehub.reporting.samples import SHEET_FILE, SampleSheet, SavedSample, make_samples

    if step is not None and sigma_rel is None:
        raise UsageError("--step belongs to --sigma-rel: the updates that it averages over.")
    asked = read_prompts(prompts)
    require_folder("--out", out)
    chosen = ChosenModel(run, model, weights, sigma_rel, step, force)

    def tell(made: SavedSample) -> None:
        say(f"{made.audio}: {made.made.duration:.2f} s, seed {made.seed}", json_mode=json_)

    with open_model(chosen, device=device) as opened:
        sheet = SampleSheet(out, opened.weights, opened.manifest)
        say(f"{opened.model.model_type}: {sheet.title}", json_mode=json_)
        make_samples(opened.model, asked, sheet, seed=seed, tell=tell)
    for name, why in sheet.failed.items():
        print_error(f"prompt {name}: {why}")
    result = {
        "samples": [str(made.audio) for made in sheet.samples],
        "failed": sheet.failed,
        "weights": sheet.weights,
        "page": out / SHEET_FILE,
    }
    finish(result, json_mode=json_, human=f"sheet   {out / SHEET_FILE}", ok=not sheet.failed)

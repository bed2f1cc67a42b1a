"""Load what ``sample`` was asked for: a run's model, its averages, or averages made on the spot."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicehub.cli.logs import show_logs
from voicehub.cli.options import resolve_device
from voicehub.cli.output import UsageError
from voicehub.cli.run_record import CONFIG_FILE
from voicehub.errors import UnsupportedTrainingError
from voicehub.models.artifact import FINAL_MODEL, RECIPE_FILE, read_artifact
from voicehub.models.lifecycle import PreTrainedSpeechModel
from voicehub.trainer.averaging import AVERAGED_MODEL


@dataclass(frozen=True)
class ChosenModel:
    """What the command line names."""

    run: Path | None
    model: Path | None
    weights: str
    sigma_rel: float | None
    step: int | None
    force: bool


@dataclass(frozen=True)
class OpenedModel:
    """A model with its weights, and what these are."""

    model: PreTrainedSpeechModel
    weights: str
    manifest: Mapping[str, Any]


@contextmanager
def open_model(chosen: ChosenModel, *, device: str) -> Iterator[OpenedModel]:
    """Load the model, and give it the configuration of its run.

    Raises:
        UsageError: the names contradict each other, or there is no such model.
        ConfigurationError: the averages cannot be made.
    """
    with _directory(chosen) as directory:
        manifest = _manifest(directory)
        model = _load(directory, resolve_device(device))
        if chosen.run is not None and (chosen.run / CONFIG_FILE).is_file():
            model.configure_sampling(_configuration(chosen.run))
        yield OpenedModel(model, str(manifest.get("weights", "raw")), manifest)


@contextmanager
def _directory(chosen: ChosenModel) -> Iterator[Path]:
    if chosen.run is None and chosen.model is None:
        raise UsageError("Name a run (--run) or a model (--model).")
    if chosen.weights not in ("raw", "ema"):
        raise UsageError(f"--weights is raw or ema, got {chosen.weights!r}.")
    for path, option in ((chosen.run, "--run"), (chosen.model, "--model")):
        if path is not None and not path.is_dir():
            raise UsageError(f"{option} {path} is no directory.")
    if chosen.model is not None:
        if chosen.weights != "raw" or chosen.sigma_rel is not None:
            raise UsageError(
                "--model is a model as it is: --weights and --sigma-rel choose among those of "
                "--run."
            )
        yield chosen.model
        return
    assert chosen.run is not None
    base = chosen.run / FINAL_MODEL
    if chosen.sigma_rel is None:
        found = chosen.run / AVERAGED_MODEL if chosen.weights == "ema" else base
        if not found.is_dir():
            raise UsageError(
                f"{found} does not exist: the run has not ended, or keeps no averaged weights."
            )
        yield found
        return
    if not base.is_dir():
        raise UsageError(f"{base} does not exist: it is what the averages are put into.")
    with tempfile.TemporaryDirectory(prefix="voicehub-ema-") as scratch:
        yield _synthesised(chosen.run, base, Path(scratch) / "model", chosen)


def _synthesised(run: Path, base: Path, target: Path, chosen: ChosenModel) -> Path:
    from voicehub.trainer.posthoc_artifact import write_averaged_artifact
    from voicehub.trainer.posthoc_synthesis import plan_synthesis, synthesised

    assert chosen.sigma_rel is not None
    plan = plan_synthesis(run, chosen.sigma_rel, step=chosen.step, force=chosen.force)
    return write_averaged_artifact(base, target, dict(synthesised(plan)), plan.describe())


def _manifest(directory: Path) -> dict[str, Any]:
    """What the artifact says of its weights."""
    try:
        recipe = json.loads((directory / RECIPE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: recipe[key] for key in ("weights", "ema") if key in recipe}


def _load(directory: Path, device: str) -> PreTrainedSpeechModel:
    from voicehub.plugins import loading
    from voicehub.plugins.groups import MODELS

    show_logs()
    model_type = read_artifact(directory).model_type
    kind: Any = loading.load(MODELS, model_type)
    model = kind.from_pretrained(directory, model_type=model_type, device=device, lazy_load=False)
    if not isinstance(model, PreTrainedSpeechModel):
        raise UnsupportedTrainingError(f"'{model_type}' ({directory}) makes no audio.")
    return model


def _configuration(run: Path) -> Any:
    """The run's own resolved configuration: no preset of today takes its place."""
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_run

    _, config = validate_run(compose_preset(str(run / CONFIG_FILE), []))
    return config

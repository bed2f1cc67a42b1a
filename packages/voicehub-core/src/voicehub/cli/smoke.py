"""``voicehub train PRESET --smoke``: everything that a run does, in a few updates and tiny shapes.

Train, save, resume after what a kill would leave, evaluate, make averages of another width where
the preset stores them, sample and measure, export, load again: on a CPU,
without a network, with data and shapes that the family makes (``smoke_factory`` of its spec), or
with those of the preset where it makes none. What is run is the preset's own recipe.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.layout import list_checkpoints
from voicehub.cli.chain import plan_chain, run_chain
from voicehub.cli.chain_record import read_chain, write_chain
from voicehub.cli.compose import Composition, compose_preset
from voicehub.cli.output import UsageError, say
from voicehub.cli.run_record import hide_credentials
from voicehub.cli.run_request import RunRequest
from voicehub.cli.tables import table
from voicehub.cli.validate import validate_run
from voicehub.errors import VoiceHubError
from voicehub.models.artifact import FINAL_MODEL, RECIPE_FILE
from voicehub.trainer.average_snapshots import FOLDER as SNAPSHOTS
from voicehub.trainer.averaging import AVERAGED_MODEL

if TYPE_CHECKING:
    from voicehub.reporting.summary import RunSummary
    from voicehub.specs.model import ModelTrainingSpec

UPDATES, SAVED_AT = 4, 2

#: Few updates, one process, one CPU, nothing sent anywhere. What is typed wins over all of it.
_BOUNDS = (
    f"training.max_steps={UPDATES}",
    "training.save_strategy=steps",
    f"training.save_steps={SAVED_AT}",
    "training.save_total_limit=null",
    "training.logging_steps=1",
    f"training.posthoc_ema_snapshot_steps={SAVED_AT}",
    "training.warmup_ratio=0",
    "training.warmup_steps=0",
    "training.dataloader_num_workers=0",
    "training.use_cpu=true",
    "training.fp16=false",
    "training.strategy=torch",
    "training.report_to=[]",
    "training.push_to_hub=false",
    "training.hub_model_id=null",
)
_EVALUATING = ("training.eval_strategy=steps", f"training.eval_steps={SAVED_AT}")
#: What follows the weights in a run, and only becomes a warning there.
_FAILED = ("Sample predictions failed", "The report failed")


class SmokeError(VoiceHubError):
    """A step did something else than the preset promises."""


@dataclass(frozen=True)
class SmokeStep:
    """One step that worked: what it showed, and seconds."""

    name: str
    detail: str
    seconds: float


@dataclass
class Smoke:
    """A smoke run under way."""

    preset: str
    directory: Path
    steps: list[SmokeStep] = field(default_factory=list)

    def do(self, name: str, action: Callable[[], str]) -> None:
        """Run one step; what it raises says which step it was."""
        began = time.perf_counter()
        try:
            detail = action()
        except VoiceHubError as error:
            raise SmokeError(
                f"smoke run of '{self.preset}', step '{name}': {error}\nIts files are in "
                f"{self.directory}."
            ) from error
        self.steps.append(SmokeStep(name, detail, time.perf_counter() - began))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        seconds = sum(step.seconds for step in self.steps)
        return {"preset": self.preset, "seconds": seconds, "steps": [asdict(s) for s in self.steps]}

    def text(self) -> str:
        """For a person."""
        rows = [(s.name, f"{s.seconds:.1f} s", s.detail) for s in self.steps]
        total = sum(step.seconds for step in self.steps)
        return (
            f"{table(('step', 'time', 'what it showed'), rows)}\n\nAll of it works ({total:.0f} s)."
        )


def run_smoke(preset: str, overrides: Sequence[str], *, json_mode: bool) -> Smoke:
    """Run all steps; their files are deleted once they have all worked.

    Raises:
        SmokeError: a step failed; names it, and where its files are.
        UsageError: the preset cannot be composed, or training.output_dir was typed.
    """
    if any(text.lstrip("+").startswith("training.output_dir=") for text in overrides):
        raise UsageError(
            "--smoke keeps its files in folders of its own, deleted where all of it works: leave "
            "out training.output_dir."
        )
    os.environ["HF_HUB_OFFLINE"] = "1"  # before anything that would read it is imported
    directory = Path(tempfile.mkdtemp(prefix="voicehub-smoke-"))
    smoke = Smoke(preset, directory)
    composed = compose_preset(preset, overrides)
    spec = _spec_of(composed)
    tiny = _tiny(spec, composed, directory / "made")
    bounds = (*_BOUNDS, *(_EVALUATING if _evaluates(composed) else ()))
    say(f"smoke run of '{preset}' in {directory}", json_mode=json_mode)

    def settings(name: str, *more: str) -> Composition:
        place = f"training.output_dir={directory / name}"
        return compose_preset(preset, [*bounds, *tiny, place, *overrides, *more])

    whole, cut = directory / "whole", directory / "cut"
    runs: list[RunSummary] = []
    smoke.do("train", lambda: _train(settings("whole"), runs, json_mode))
    smoke.do("save", lambda: _saved(whole))
    smoke.do("resume", lambda: _resumed(settings("cut", "resume=auto"), whole, cut, json_mode))
    smoke.do("eval", lambda: _evaluated(runs[-1]))
    if _averages(settings("whole")):
        smoke.do("ema", lambda: _averaged(_last_run(whole), directory / "averaged"))
    smoke.do("sample", lambda: _followed(runs[-1]))
    smoke.do("export", lambda: _exported(whole / FINAL_MODEL))
    smoke.do("load", lambda: _loaded(spec, whole / FINAL_MODEL))
    shutil.rmtree(directory)
    return smoke


def _spec_of(composition: Composition) -> ModelTrainingSpec:
    from voicehub.specs.registry import get_training_spec

    model_type = composition.values.get("model_type")
    if not isinstance(model_type, str):
        raise UsageError(f"Preset '{composition.preset.name}' sets no model_type.")
    return get_training_spec(model_type)


def _evaluates(composition: Composition) -> bool:
    parts = composition.stages or (composition,)
    chosen = (part.values.get("training", {}).get("eval_strategy", "no") for part in parts)
    return any(strategy != "no" for strategy in chosen)


def _averages(composition: Composition) -> bool:
    """Whether the last run keeps averaged weights."""
    part = composition.stages[-1] if composition.stages else composition
    training = part.values.get("training", {})
    return bool(training.get("posthoc_ema")) or training.get("ema_decay") is not None


def _tiny(spec: ModelTrainingSpec, composed: Composition, directory: Path) -> list[str]:
    """The family's settings for tiny shapes, over data that it makes in ``directory``."""
    from voicehub.plugins.loading import resolve_reference

    if spec.smoke_factory is None:
        return []
    directory.mkdir(parents=True)
    factory: Any = resolve_reference(spec.smoke_factory, what=f"'{spec.model_type}'")
    values = composed.stages[0].values if composed.stages else composed.values
    return [str(override) for override in factory(values, directory)]


def _train(composition: Composition, runs: list[RunSummary], json_mode: bool) -> str:
    """A whole run, or all stages of a chain."""
    from voicehub.cli.training_run import run_training

    if composition.stages:
        summary = run_chain(plan_chain(composition, json_mode=json_mode))
        if summary.last is not None:
            runs.append(summary.last)
        return f"{len(summary.finished)} stages of {UPDATES} updates"
    spec, config = validate_run(composition)
    values = hide_credentials(config.model_dump(mode="json"))
    runs.append(run_training(RunRequest(composition, spec, config, values, json_mode)))
    loss = runs[-1].training_loss
    if loss is not None and not math.isfinite(loss):
        raise SmokeError(f"the training loss is {loss}")
    return f"{runs[-1].steps} updates, loss {loss:.4g}" if loss is not None else "no loss"


def _last_run(directory: Path) -> Path:
    """The run directory, or that of a chain's last stage."""
    finished = read_chain(directory)
    return directory / finished[-1].folder if finished else directory


def _saved(directory: Path) -> str:
    from voicehub.checkpoints.manifest import read_manifest, verify_files

    checkpoints = list_checkpoints(_last_run(directory))
    if not checkpoints:
        raise SmokeError("no complete checkpoint was written")
    for checkpoint in checkpoints:
        verify_files(checkpoint, read_manifest(checkpoint))
    return f"{len(checkpoints)} checkpoints, every digest right"


def _resumed(composition: Composition, whole: Path, cut: Path, json_mode: bool) -> str:
    """Go on from what a kill after the first checkpoint leaves; the weights must be the same."""
    shutil.copytree(whole, cut)
    finished = read_chain(cut)
    run = _last_run(cut)
    if finished:
        write_chain(cut, finished[:-1])
        shutil.rmtree(cut / FINAL_MODEL)
    first, *later = list_checkpoints(run)
    for checkpoint in later:
        shutil.rmtree(checkpoint)
    for name in (FINAL_MODEL, AVERAGED_MODEL):
        shutil.rmtree(run / name, ignore_errors=True)
    _train(composition, [], json_mode)
    files = [
        file
        for name in (FINAL_MODEL, AVERAGED_MODEL, SNAPSHOTS)
        for file in sorted((whole / name).rglob("*.safetensors"))
    ]
    for file in files:
        again = cut / file.relative_to(whole)
        if not again.is_file() or again.read_bytes() != file.read_bytes():
            raise SmokeError(
                f"after resuming from {first.name}, {file.name} differs from that of the run that "
                "was never stopped"
            )
    return f"from {first.name}: {len(files)} weight files bit-equal to the undisturbed run's"


def _evaluated(run: RunSummary) -> str:
    broken = {name: value for name, value in run.metrics.items() if not math.isfinite(value)}
    if broken:
        raise SmokeError(f"metrics are not finite: {broken}")
    shown = ", ".join(f"{name} {value:.4g}" for name, value in list(run.metrics.items())[:3])
    return shown or "the preset evaluates nothing"


def _averaged(run: Path, target: Path) -> str:
    """Averaged weights are there; where they are stored, of a width between those tracked, too."""
    from voicehub.trainer.posthoc_artifact import write_averaged_artifact
    from voicehub.trainer.posthoc_synthesis import own_snapshots, plan_synthesis, synthesised

    averaged = run / AVERAGED_MODEL
    recipe = json.loads((averaged / RECIPE_FILE).read_text(encoding="utf-8"))
    if recipe.get("weights") != "ema":
        raise SmokeError(f"{averaged} does not say that it holds averaged weights")
    if not (run / SNAPSHOTS).is_dir():
        return f"{averaged.name}, {recipe['ema']['updates']} updates"
    _, snapshots = own_snapshots(run)
    widths = [average.sigma_rel for average in snapshots[-1].averages]
    between = sum(widths[:2]) / len(widths[:2])
    plan = plan_synthesis(run, between, force=True)
    write_averaged_artifact(run / FINAL_MODEL, target, dict(synthesised(plan)), plan.describe())
    return f"width {between:g} from {len(snapshots)} snapshots"


def _followed(run: RunSummary) -> str:
    failed = [warning for warning in run.warnings if warning.startswith(_FAILED)]
    if failed or run.failures:
        raise SmokeError("; ".join([*run.failures, *failed]))
    made = 0 if run.run_directory is None else len(list(run.run_directory.glob("samples/*/*.wav")))
    measured = "".join(f", {name} {run.metrics[name]:.4g}" for name in run.final_metrics)
    return (
        f"{made} prompts made, report written{measured}" if made else "samples and report written"
    )


def _exported(model: Path) -> str:
    recipe = json.loads((model / RECIPE_FILE).read_text(encoding="utf-8"))
    place = recipe.get("native_export_path")
    if place is None:
        return "this model has no layout of another library"
    files = [path for path in (model / place).rglob("*") if path.is_file()]
    if not files:
        raise SmokeError(f"{model / place} is empty")
    return f"{len(files)} files in {place}"


def _loaded(spec: ModelTrainingSpec, model: Path) -> str:
    from voicehub.plugins import loading
    from voicehub.plugins.groups import MODELS

    kind: Any = loading.load(MODELS, spec.model_type)
    kind.from_pretrained(model, model_type=spec.model_type, lazy_load=False)
    return f"{kind.__name__} from {model.name}"

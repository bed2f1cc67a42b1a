"""``voicehub train`` on a preset with ``stages``: one run a stage, each from the one before.

``output_dir/<n>-<stage>`` is the run directory of a stage; it starts from the final model of the
stage before it, weights alone. ``output_dir/stages.json`` says what is finished, and
``output_dir/final-model`` is that of the last stage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.layout import list_checkpoints
from voicehub.cli.chain_record import (
    CHAIN_FILE,
    FinishedStage,
    check_finished,
    read_chain,
    write_chain,
)
from voicehub.cli.compose import Composition
from voicehub.cli.output import UsageError, say
from voicehub.cli.processes import is_primary, wait_for_all, was_restarted
from voicehub.cli.run_record import (
    CONFIG_FILE,
    config_as_yaml,
    hide_credentials,
    prepare_run_directory,
    replace_file,
)
from voicehub.cli.run_request import RunRequest
from voicehub.cli.stage_settings import STAGES
from voicehub.cli.validate import validate_stages
from voicehub.models.artifact import FINAL_MODEL
from voicehub.models.assets import Asset, locate_assets, named_assets, require_assets
from voicehub.reporting.summary import RunSummary

if TYPE_CHECKING:
    from voicehub.cli.start_estimate import StartEstimates

_PUBLISHED = (FINAL_MODEL, f"{FINAL_MODEL}-ema")


@dataclass(frozen=True)
class Chain:
    """All stages of a run, settled and checked before the first one starts."""

    directory: Path
    stages: tuple[RunRequest, ...]
    resume: bool | str | None
    overwrite: bool
    yaml: str
    assets: tuple[Asset, ...]

    @property
    def names(self) -> list[str]:
        """Names of the stages in their order."""
        return [str(stage.composition.stage) for stage in self.stages]


@dataclass
class ChainSummary:
    """What became of a chain: ``last`` is the run of the last stage that trained, if any did."""

    directory: Path
    finished: list[FinishedStage] = field(default_factory=list)
    last: RunSummary | None = None
    failures: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stages": [
                {
                    "name": stage.name,
                    "run_directory": str(self.directory / stage.folder),
                    "steps": stage.steps,
                    "metrics": stage.metrics,
                    "model_sha256": stage.model,
                }
                for stage in self.finished
            ],
            "model_directory": str(self.directory / FINAL_MODEL),
        }

    def text(self) -> str:
        """For a person: the run of the last stage, and where the model is."""
        own = f"{self.last.text()}\n" if self.last is not None else "Nothing was left to train.\n"
        names = ", ".join(stage.name for stage in self.finished)
        count = len(self.finished)
        failed = "".join(f"FAILED in stage {text}\n" for text in self.failures)
        where = self.directory / FINAL_MODEL
        return f"{own}{failed}All {count} stages are finished ({names}): {where}"


def plan_chain(composition: Composition, *, json_mode: bool) -> Chain:
    """Validate every stage and give each its folder and its start.

    Raises:
        UsageError: a stage's configuration is not valid, or ``resume`` names a checkpoint.
    """
    validated = validate_stages(composition)
    named = [asset for _, config in validated for asset in named_assets(config)]
    first = validated[0][1]
    resume, directory = first.resume, Path(first.training.output_dir)
    if isinstance(resume, str) and resume != "auto":
        raise UsageError(
            f"resume={resume}: a chain of stages finds its place by itself. Give resume=auto, or "
            f"run that stage alone from its own {CONFIG_FILE}."
        )
    if not resume and was_restarted():
        resume = "auto"  # the launcher has started this very run again after a failure
    overwrite = first.training.overwrite_output_dir and not resume
    stages: list[RunRequest] = []
    for position, (spec, config) in enumerate(validated, start=1):
        stage = composition.stages[position - 1]
        update: dict[str, Any] = {
            "name": f"{config.name}-{stage.stage}",
            "resume": "auto" if resume else None,
        }
        if stages:
            update["init_from"] = str(stages[-1].run_directory / FINAL_MODEL)
        config = config.model_copy(update=update)
        config.training.output_dir = str(directory / f"{position}-{stage.stage}")
        values = hide_credentials(config.model_dump(mode="json"))
        stages.append(RunRequest(stage, spec, config, values, json_mode))
    assets = tuple(dict.fromkeys(named))
    yaml = _chain_yaml(stages, directory)
    return Chain(directory, tuple(stages), resume, overwrite, yaml, assets)


def _chain_yaml(stages: Sequence[RunRequest], directory: Path) -> str:
    """The whole chain as one preset file that ``voicehub train`` takes again."""
    head, preset = stages[0].config, stages[0].composition.preset.name
    name = head.name.removesuffix(f"-{stages[0].composition.stage}")
    document: dict[str, Any] = {"family": head.family, "model_type": head.model_type, "name": name}
    if head.init_from is not None:
        document["init_from"] = head.init_from
    document["training"] = {"output_dir": str(directory)}
    document[STAGES] = {}
    for stage in stages:
        chains = ("family", "model_type", "name", "init_from", "resume")
        settings = {key: value for key, value in stage.values.items() if key not in chains}
        training = {
            key: value
            for key, value in settings["training"].items()
            if key not in ("output_dir", "overwrite_output_dir")
        }
        document[STAGES][stage.composition.stage] = {**settings, "training": training}
    return config_as_yaml(document, f"Resolved from '{preset}'.")


def run_chain(chain: Chain, *, estimates: bool = False) -> ChainSummary:
    """Run what is not finished yet, stage by stage.

    Args:
        chain: all stages.
        estimates: tell what memory each stage needs.

    Raises:
        UsageError: finished stages differ from what the preset says now, or nothing says to
            continue them.
        Interrupted: the user stopped it; the message says how to continue.
    """
    require_assets(locate_assets(chain.assets))
    finished = _start(chain)
    with _estimates(chain, estimates) as told:
        summary = _run_stages(chain, finished, told)
    if is_primary():
        _publish(chain)
    wait_for_all()
    return summary


def _estimates(chain: Chain, wanted: bool) -> AbstractContextManager[StartEstimates | None]:
    if not wanted:
        return nullcontext()
    from voicehub.cli.start_estimate import StartEstimates

    return StartEstimates(chain.stages)


def _run_stages(
    chain: Chain, finished: list[FinishedStage], estimates: StartEstimates | None
) -> ChainSummary:
    summary = ChainSummary(chain.directory, finished)
    for position, request in enumerate(chain.stages):
        name, total = chain.names[position], len(chain.stages)
        head = f"stage {position + 1} of {total}, {name}"
        if position < len(finished):
            stage = finished[position]
            _say(chain, f"{head}: finished earlier, {stage.steps:,} steps")
            continue
        if summary.last is not None:
            _say(chain, f"\n{summary.last.text()}")
        if position > 0:
            _check_start(chain, finished[-1], request)
            _say(chain, f"\n{head}: from {request.config.init_from}")
        else:
            _say(chain, head)
        finished.append(_run_stage(chain, request, summary, estimates))
        if is_primary():
            write_chain(chain.directory, finished)
    return summary


def _start(chain: Chain) -> list[FinishedStage]:
    """What is finished and counts; the chain's own files are there afterwards."""
    directory = chain.directory
    finished = [] if chain.overwrite else read_chain(directory)
    if finished and not chain.resume:
        raise UsageError(
            f"{directory} holds {len(finished)} finished stages of an earlier run "
            f"({', '.join(stage.name for stage in finished)}). Continue it with resume=auto, "
            "choose another training.output_dir=PATH, or start anew with "
            "training.overwrite_output_dir=true."
        )
    if chain.resume is True and not finished and not list_checkpoints(_folder(chain, 0)):
        raise UsageError(
            f"resume=true, but {directory} holds no finished stage and no complete checkpoint. "
            "resume=auto starts anew in that case."
        )
    check_finished(finished, chain.names, [stage.values for stage in chain.stages], directory)
    if is_primary():
        prepare_run_directory(directory)
        if chain.overwrite:
            _forget(chain)
        replace_file(directory / CONFIG_FILE, chain.yaml)
    return finished


def _folder(chain: Chain, position: int) -> Path:
    return chain.stages[position].run_directory


def _forget(chain: Chain) -> None:
    """Delete what would make a later resume take the older chain's stages for this one's."""
    from voicehub.checkpoints.litter import discard_checkpoint

    (chain.directory / CHAIN_FILE).unlink(missing_ok=True)
    for position in range(len(chain.stages)):
        for checkpoint in list_checkpoints(_folder(chain, position)):
            discard_checkpoint(checkpoint)


def _check_start(chain: Chain, before: FinishedStage, request: RunRequest) -> None:
    """The model of the stage before must still be the one that its stage ended with."""
    found = _model_digest(request.config.init_from, request.spec.model_type)
    if found != before.model:
        raise UsageError(
            f"{request.config.init_from} has changed since stage '{before.name}' was finished: its "
            f"SHA-256 was {before.model}, now {found}. Restore it, or start anew with "
            "training.overwrite_output_dir=true."
        )


def _model_digest(directory: str | Path | None, model_type: str) -> str:
    from voicehub.models.initial import read_initial_weights

    assert directory is not None  # every stage but the first has one
    return read_initial_weights(directory, model_type=model_type).sha256


def _run_stage(
    chain: Chain, request: RunRequest, summary: ChainSummary, estimates: StartEstimates | None
) -> FinishedStage:
    from voicehub.cli.run_record import recorded_start
    from voicehub.cli.training_run import run_training

    run = summary.last = run_training(request, estimates)
    summary.failures += [f"{request.composition.stage}: {text}" for text in run.failures]
    wait_for_all()  # the primary process has written the model by then
    start = recorded_start(request.run_directory)
    kept = None if start is None else {key: start[key] for key in ("path", "sha256")}
    return FinishedStage(
        name=str(request.composition.stage),
        folder=request.run_directory.name,
        config=dict(request.values),
        init_from=kept,
        model=_model_digest(request.run_directory / FINAL_MODEL, request.spec.model_type),
        steps=run.steps,
        seconds=run.seconds,
        metrics=dict(run.metrics),
    )


def _publish(chain: Chain) -> None:
    """Offer the last stage's model as the chain's: hard links where the file system has them."""
    from voicehub.trainer.saving import replace_directory

    for name in _PUBLISHED:
        source, target = _folder(chain, -1) / name, chain.directory / name
        if source.is_dir():
            replace_directory(target, partial(_link_tree, source))


def _link_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
            continue
        try:
            os.link(path, copy)
        except OSError:  # another file system, or one without links
            shutil.copy2(path, copy)


def _say(chain: Chain, text: str) -> None:
    if is_primary():
        say(text, json_mode=chain.stages[0].json_mode)

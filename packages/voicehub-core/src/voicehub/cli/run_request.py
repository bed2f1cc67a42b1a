"""What `voicehub train` was asked for, and where its run continues from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.cli.compose import Composition
from voicehub.cli.earlier_run import refuse_to_replace
from voicehub.cli.output import UsageError
from voicehub.cli.processes import is_one_of_several, was_restarted
from voicehub.cli.run_record import config_as_yaml, recorded_start

if TYPE_CHECKING:
    from voicehub.models.initial import InitialWeights
    from voicehub.specs.model import ModelTrainingSpec
    from voicehub.trainer.run_config import RunConfig


@dataclass(frozen=True)
class RunRequest:
    """A settled configuration, where it came from and where people read about the run.

    ``values`` is ``config`` as plain data without credentials. With ``json_mode`` everything for
    a person goes to standard error. ``initial`` are the weights that ``init_from`` names.
    """

    composition: Composition
    spec: ModelTrainingSpec
    config: RunConfig
    values: Mapping[str, Any]
    json_mode: bool
    initial: InitialWeights | None = None

    @property
    def run_directory(self) -> Path:
        """``training.output_dir``."""
        return Path(self.config.training.output_dir)

    @property
    def yaml(self) -> str:
        """Content of ``config.yaml``."""
        stage = "" if self.composition.stage is None else f", stage '{self.composition.stage}'"
        origin = f"Resolved from '{self.composition.preset.name}'{stage}."
        return config_as_yaml(self.values, origin)

    def command(self, *extra: str) -> str:
        """The command line of this run, with ``extra`` overrides in place of older ones."""
        replaced = {item.split("=", 1)[0] for item in extra}
        kept = [
            item
            for item in self.composition.overrides
            if item.lstrip("+").split("=", 1)[0] not in replaced
        ]
        return shlex.join(["voicehub", "train", self.composition.preset.name, *kept, *extra])


def with_initial_weights(request: RunRequest) -> RunRequest:
    """Read and hash what ``init_from`` names; from here on it is the artifact's own directory.

    Raises:
        ConfigurationError: there is no such artifact, or it is of another model type.
        UsageError: a checkpoint to resume from is given as well.
    """
    source, resume = request.config.init_from, request.config.resume
    if source is None:
        return request
    if resume not in (None, False, "auto"):
        raise UsageError(
            f"init_from={source} and resume={str(resume).lower() if resume is True else resume} "
            "exclude each other: init_from starts a new run from weights alone, resume continues "
            "one with everything. Give one of them."
        )
    from voicehub.models.initial import read_initial_weights

    weights = read_initial_weights(source, model_type=request.spec.model_type)
    config = request.config.model_copy(update={"init_from": str(weights.directory)})
    return replace(request, config=config, initial=weights)


def resume_from(request: RunRequest) -> bool | str | None:
    """What ``resume`` means for ``Trainer.train``.

    Raises:
        UsageError: there is nothing to resume from, or another run would be mixed in.
    """
    resume, run_directory = request.config.resume, request.run_directory
    latest = latest_checkpoint(run_directory) if run_directory.is_dir() else None
    if not resume and was_restarted():
        resume = "auto"  # the launcher has started this very run again after a failure
    if resume == "auto" and latest is not None:
        _check_same_start(request, latest)
    if resume in (True, "auto") and latest is not None and not was_restarted():
        _check_whole(latest)
    overwrite = request.config.training.overwrite_output_dir
    if resume == "auto":
        # A stage whose end was not recorded yet, and what is restarted, are made again.
        made_again = request.composition.stage is not None or was_restarted()
        if latest is None and not overwrite and not made_again:
            refuse_to_replace(run_directory)
        return True if latest is not None else None
    if resume is True and latest is None:
        raise UsageError(
            f"resume=true, but {run_directory} holds no complete checkpoint. resume=auto starts "
            "anew in that case."
        )
    if isinstance(resume, str):
        if not Path(resume).is_dir():
            raise UsageError(f"resume={resume}: there is no such checkpoint directory.")
        return resume
    if not resume and not overwrite:
        refuse_to_replace(run_directory)
    return resume or None


def _check_same_start(request: RunRequest, latest: Path) -> None:
    """What continues by itself must have started from the weights that are named now, if any are.

    Raises:
        UsageError: it started from others.
    """
    if request.initial is None:
        return
    recorded = recorded_start(request.run_directory)
    if recorded is not None and recorded.get("sha256") == request.initial.sha256:
        return
    was = "random or pretrained weights"
    if recorded is not None:
        was = f"{recorded.get('path')} (SHA-256 {recorded.get('sha256')})"
    raise UsageError(
        f"{latest} belongs to a run that started from {was}, but init_from now names "
        f"{request.initial.directory} (SHA-256 {request.initial.sha256}). Leave init_from out to "
        "continue that run, or choose another training.output_dir."
    )


def _check_whole(latest: Path) -> None:
    """Find out before the data is read, which may take long, that files are missing or cut off.

    Digests are checked when the checkpoint is read.

    Raises:
        CheckpointCorruptError: they are; an older sound checkpoint is named.
    """
    from voicehub.checkpoints.manifest import read_manifest, verify_sizes
    from voicehub.errors import CheckpointCorruptError

    try:
        verify_sizes(latest, read_manifest(latest))
    except CheckpointCorruptError:
        from voicehub.trainer.resume import open_newest

        open_newest(latest.parent)


def how_to_continue(request: RunRequest) -> str:
    """What to tell somebody who has stopped the run."""
    latest = latest_checkpoint(request.run_directory)
    if latest is None:
        return "interrupted before the first checkpoint: nothing was saved, start it again."
    if is_one_of_several():
        return f"interrupted; {latest.name} is complete. Start all of them again with resume=auto."
    command = request.command("resume=auto")
    return f"interrupted; {latest.name} is complete. Continue with:\n  {command}"

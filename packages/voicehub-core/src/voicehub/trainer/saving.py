"""Writing checkpoints, and the portable artifact of ``save_model``."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.checkpoints.layout import checkpoint_name, list_checkpoints
from voicehub.checkpoints.litter import discard_checkpoint
from voicehub.checkpoints.random_state import capture_random_state
from voicehub.checkpoints.rotation import rotate
from voicehub.checkpoints.snapshot import CheckpointPayload, SnapshotBuffers, snapshot
from voicehub.checkpoints.writer import commit
from voicehub.errors import CheckpointError
from voicehub.optim.bundle import SchedulerBundle
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.background import BackgroundWriter
from voicehub.trainer.callbacks import CallbackHandler
from voicehub.trainer.composition import Graph
from voicehub.trainer.progress import LogWindow
from voicehub.trainer.shared_checkpoint import write_shares
from voicehub.trainer.state import TrainerState

logger = logging.getLogger(__name__)

#: Names that ``replace_directory`` gives while it works.
_HALF_REPLACED = re.compile(r"\.(?P<name>.+)\.(?P<state>incomplete|replaced)-[0-9a-f]{8}")


class CheckpointSaver:
    """Writes ``checkpoint-<step>`` directories of one run and rotates old ones."""

    def __init__(
        self,
        *,
        run_dir: Path,
        run_id: str,
        args: TrainingArguments,
        graph: Graph,
        schedulers: SchedulerBundle,
        strategy: TrainingStrategy,
        scaler: Any,
        callbacks: CallbackHandler,
        progress: LogWindow,
        identity: dict[str, Any],
        extra_files: dict[str, Callable[[Path], None]],
        on_saved: Callable[[Path], None],
    ) -> None:
        self.run_dir = run_dir
        self.run_id = run_id
        self.args = args
        self.graph = graph
        self.schedulers = schedulers
        self.strategy = strategy
        self.scaler = scaler
        self.callbacks = callbacks
        self.progress = progress
        self.identity = identity
        self.extra_files = extra_files
        self.on_saved = on_saved
        self._buffers = SnapshotBuffers()
        self._infinite = infinite_by_design(graph.adapter.module)
        self._writer: BackgroundWriter | None = None

    def save(self, state: TrainerState) -> None:
        """Copy the state of this step and start writing it; training goes on meanwhile.

        Waits for a checkpoint that is still being written: at most one is in flight.

        Raises:
            CheckpointError: weights are not finite, or the checkpoint before could not be written.
        """
        self._collect()
        ranks = self.strategy.gather_objects(capture_random_state(), what="random states")
        if not (self.strategy.is_primary or self.strategy.holds_parts):
            return
        payload, shards = self._payload(state, ranks), None
        if self.strategy.holds_parts:
            payload, shards = write_shares(
                self.strategy,
                self.graph.adapter.module,
                payload,
                run_dir=self.run_dir,
                step=state.global_step,
                run_id=self.run_id,
            )
            if not self.strategy.is_primary:
                return
        name = checkpoint_name(state.global_step)
        content = snapshot(payload, buffers=self._buffers)
        fields = {**self.identity, "run_id": self.run_id}
        protect = [name, *(kept for kept, _ in state.best_checkpoints)]

        step = state.global_step

        def write() -> Path:
            written = commit(self.run_dir, step, content, fields, shards)
            rotate(self.run_dir, self.run_id, self.args.save_total_limit, protect)
            return written

        self._writer = BackgroundWriter(write)

    def settle(self, *, wait: bool = False) -> None:
        """Report a checkpoint whose writing has ended.

        Args:
            wait: until it has.

        Raises:
            CheckpointError: it could not be written (a full disk); older ones are untouched.
        """
        if self._writer is not None and (wait or not self._writer.is_running):
            self._collect()

    def abandon(self) -> None:
        """Let what is in flight end, when training has failed for a reason of its own."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.result()
            except Exception:
                logger.exception("The last checkpoint could not be written either.")

    def _collect(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self.on_saved(writer.result())

    def _payload(
        self, state: TrainerState, random_states: Sequence[dict[str, Any]]
    ) -> CheckpointPayload:
        adapter = self.graph.adapter
        return CheckpointPayload(
            tensors={} if self.strategy.holds_parts else adapter.state_dict(),
            allow_non_finite=self._infinite,
            frozen=never_trained(adapter),
            optimizer=self.graph.optimizers.state_dict(),
            scheduler=self.schedulers.state_dict(),
            scaler=None if self.scaler is None else self.scaler.state_dict(),
            rng_state=random_states[0],
            runtime={
                "recipe": adapter.recipe_state_dict(),
                "strategy": self.strategy.state_dict(),
                "callbacks": self.callbacks.state_dict(),
                # Those of the other processes; the files for one hold that of the first.
                **({"random_states": random_states[1:]} if len(random_states) > 1 else {}),
            },
            documents={
                "trainer_state.json": {
                    "state": state.to_dict(),
                    "log_window": self.progress.state_dict(),
                },
                "training_args.json": self.args.to_dict(),
                "training_recipe.json": adapter.artifact_manifest(),
            },
            extra_files=self.extra_files,
        )


def infinite_by_design(module: nn.Module) -> frozenset[str]:
    """Names of buffers that are not finite before any update: attention masks and the like."""
    return frozenset(
        name
        for name, buffer in module.named_buffers()
        if buffer.is_floating_point() and not bool(torch.isfinite(buffer).all())
    )


def never_trained(adapter: TrainingAdapter) -> frozenset[str]:
    """Names of parameters that no route owns and that take no gradient: a frozen base, as a rule.

    What a freeze schedule holds back for a while belongs to a route.
    """
    routed = {parameter for named in adapter.routes.values() for _, parameter in named}
    return frozenset(
        name
        for name, parameter in adapter.module.named_parameters()
        if not parameter.requires_grad and parameter not in routed
    )


def put_previous_aside(directory: Path) -> None:
    """Keep what an earlier run left as ``<name>.previous``, in the place of an older one."""
    if directory.exists():
        previous = directory.with_name(f"{directory.name}.previous")
        shutil.rmtree(previous, ignore_errors=True)
        directory.rename(previous)


@contextlib.contextmanager
def _set_aside(target: Path) -> Iterator[None]:
    """Move an existing directory out of the way; back on failure, deleted on success."""
    if not target.exists():
        yield
        return
    aside = target.with_name(f".{target.name}.replaced-{uuid.uuid4().hex[:8]}")
    target.rename(aside)
    try:
        yield
    except BaseException:
        if not target.exists():
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)  # what stays is removed at the next start


def prepare_run_directory(run_dir: Path, *, resuming: bool, overwrite: bool) -> None:
    """Make the run directory, refuse to mix two runs, or clear the old one when asked to.

    Raises:
        FileExistsError: complete checkpoints are there and the run neither resumes nor overwrites.
        CheckpointError: the directory cannot be written.
    """
    existing = list_checkpoints(run_dir)
    if existing and not resuming:
        if not overwrite:
            raise FileExistsError(
                f"'{run_dir}' holds {len(existing)} checkpoints of an earlier run, the newest "
                f"'{existing[-1].name}'. Resume it (resume_from_checkpoint=True), choose another "
                "output_dir, or set overwrite_output_dir=True to delete them."
            )
        for checkpoint in existing:
            discard_checkpoint(checkpoint)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        probe = run_dir / ".write-test"  # one name, so that a killed start leaves no litter
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"The run directory '{run_dir}' cannot be written: {error.strerror}. Choose another "
            "output_dir or change its permissions."
        ) from None


def replace_directory(target: Path, write: Callable[[Path], None]) -> Path:
    """Fill a new directory beside ``target``, then put it in the place of an older one.

    A failure while writing leaves the older directory as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.incomplete-{uuid.uuid4().hex[:8]}"
    fresh.mkdir()
    try:
        write(fresh)
        for path in fresh.rglob("*"):
            # Directories too: they hold the names. Windows cannot open them.
            if path.is_file() or os.name == "posix":
                _fsync(path)
        with _set_aside(target):
            fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _fsync(target.parent)
    return target


def complete_recipe_manifest(
    directory: Path, adapter: TrainingAdapter, saved: Mapping[str, Any]
) -> None:
    """Say in an artifact's ``training_recipe.json`` which weights it holds.

    What the adapter wrote there, the place of the native export included, stays.
    """
    path = directory / "training_recipe.json"
    manifest = adapter.artifact_manifest()
    if path.is_file():
        manifest = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {**manifest, **saved})


def recover_directories(root: Path) -> None:
    """Tidy up after a process that was killed in ``replace_directory``.

    What was never finished goes; what had been moved aside returns where nothing took its place.
    """
    for path in sorted(root.iterdir()):
        found = _HALF_REPLACED.fullmatch(path.name)
        if found is None or path.is_symlink() or not path.is_dir():
            continue
        target = root / found.group("name")
        if found.group("state") == "replaced" and not target.exists():
            path.rename(target)
        else:
            shutil.rmtree(path, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Strict JSON, sorted, with a final newline."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False, default=str)
    path.write_text(text + "\n", encoding="utf-8")


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

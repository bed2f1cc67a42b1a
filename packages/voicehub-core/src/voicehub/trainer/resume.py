"""Exact resume: what must be equal, what is restored, in which order."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from voicehub.checkpoints.layout import TRAINING_ARGS_FILE, latest_checkpoint, list_checkpoints
from voicehub.checkpoints.random_state import restore_random_state
from voicehub.checkpoints.reader import Checkpoint, open_checkpoint
from voicehub.checkpoints.rotation import checkpoint_run_id
from voicehub.checkpoints.signature import compare_signatures
from voicehub.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError
from voicehub.optim.bundle import SchedulerBundle
from voicehub.passes.plan import OptimizationPlan
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import CallbackHandler
from voicehub.trainer.changed_settings import described
from voicehub.trainer.composition import Graph
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.fingerprint import describe_object
from voicehub.trainer.horizon import Horizon
from voicehub.trainer.progress import LogWindow
from voicehub.trainer.shared_checkpoint import laid_out_like
from voicehub.trainer.state import TrainerState
from voicehub.trainer.topology import without_topology

logger = logging.getLogger(__name__)

_WARM_START = (
    "To start a new run from the weights alone, choose another training.output_dir and give "
    "init_from=RUN (a finished run or a model), or in Python load them with Trainer.load_weights."
)


def resolve_checkpoint(resume: bool | str | Path, run_dir: Path) -> Path:
    """The directory to resume from.

    Raises:
        FileNotFoundError: there is none, or the given one does not exist.
    """
    if resume is True:
        found = latest_checkpoint(run_dir)
        if found is None:
            raise FileNotFoundError(
                f"No checkpoint found in '{run_dir}': nothing complete to resume from."
            )
        return found
    path = Path(str(resume))
    if not path.is_dir():
        raise FileNotFoundError(f"Checkpoint does not exist: '{path}'.")
    return path


def open_newest_sound(run_dir: Path) -> Checkpoint:
    """Open the newest checkpoint that verifies, for a run that nobody watches being restarted.

    Raises:
        FileNotFoundError: there is none.
    """
    for path in reversed(list_checkpoints(run_dir)):
        found = _open_sound(path)
        if found is not None:
            return found
    raise FileNotFoundError(f"No sound checkpoint found in '{run_dir}' to restart from.")


def open_newest(run_dir: Path) -> Checkpoint:
    """Open the newest complete checkpoint.

    Raises:
        CheckpointCorruptError: it is damaged; the newest sound one before it is named.
        FileNotFoundError: there is none.
    """
    path = resolve_checkpoint(True, run_dir)
    try:
        return open_checkpoint(path)
    except CheckpointCorruptError as error:
        raise CheckpointCorruptError(f"{error} {_older_sound(run_dir, path)}") from error


def _older_sound(run_dir: Path, damaged: Path) -> str:
    """What to say of the checkpoints before ``damaged``."""
    for path in reversed(list_checkpoints(run_dir)):
        if path == damaged:
            continue
        try:
            open_checkpoint(path)
        except CheckpointError:
            continue
        return (
            f"The newest sound one is {path.name}: go on from it with resume={path} (in Python "
            f"resume_from_checkpoint='{path}')."
        )
    return f"{run_dir} holds no sound one: start anew in another training.output_dir."


def _open_sound(path: Path) -> Checkpoint | None:
    try:
        return open_checkpoint(path)
    except CheckpointCorruptError as error:
        logger.warning("%s The restarted run goes on from the one before.", error)
        return None


def build_signature(
    *,
    args: TrainingArguments,
    graph: Graph,
    feed: DataFeed,
    horizon: Horizon,
    schedulers: SchedulerBundle,
    strategy: TrainingStrategy,
    callbacks: CallbackHandler,
    scaling: bool,
    plan: OptimizationPlan | None = None,
) -> dict[str, Any]:
    """Everything that must be equal for a bit-exact resume, as JSON.

    The number of dataloader workers, logging and saving intervals are not part of it: they do
    not change what is computed.
    """
    routes = graph.optimizers.optimizers
    return {
        "data": {
            **feed.fingerprint(),
            "seed": args.effective_data_seed,
            "micro_batch": args.per_device_train_batch_size,
            "accumulation": args.gradient_accumulation_steps,
            "drop_last": args.dataloader_drop_last,
        },
        "schedule": _describe_schedule(args, horizon, schedulers),
        "optimization": {
            "max_grad_norm": args.max_grad_norm,
            "gradient_checkpointing": args.gradient_checkpointing,
            "freeze": [dataclasses.asdict(rule) for rule in args.freeze],
            "optimizers": {name: _describe_optimizer(opt) for name, opt in routes.items()},
        },
        "optimization_plan": [] if plan is None else plan.identity(),
        "precision": {
            "fp16": args.fp16,
            "bf16": args.bf16,
            "device": graph.device,
            "scaler": scaling,
        },
        "seed": args.seed,
        "strategy": strategy.resume_signature(),
        "recipe": graph.adapter.resume_configuration(),
        "stateful_callbacks": [
            {"name": name, **describe_object(callback)}
            for name, callback in callbacks.stateful()
            if getattr(callback, "state_name", None) is None  # those only watch
        ],
    }


def _describe_schedule(
    args: TrainingArguments, horizon: Horizon, schedulers: SchedulerBundle
) -> dict[str, Any]:
    return {
        "type": args.lr_scheduler_type,
        "options": args.schedule_options,
        "max_steps": horizon.max_steps,
        "routes": {
            name: {
                "updates": updates,
                "warmup": args.get_warmup_steps(updates),
                "scheduler": _class_name(schedulers[name]),
            }
            for name, updates in horizon.route_updates.items()
        },
    }


def _describe_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    groups = []
    for group in optimizer.param_groups:
        settings = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in sorted(group.items())
            if isinstance(value, (bool, int, float, str, tuple)) and key != "lr"
        }
        groups.append({**settings, "tensors": len(group["params"])})
    return {"class": _class_name(optimizer), "groups": groups}


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def check_same_run(
    checkpoint: Checkpoint,
    current: dict[str, Any],
    *,
    topology: str = "same",
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Refuse another model type, adapter, optimizer names, strategy or signature.

    Args:
        checkpoint: what is to be resumed.
        current: what this run would write in its manifest.
        topology: ``any`` accepts another strategy and number of processes.
        settings: of this run's ``training``, so that differences have the names a user knows.

    Raises:
        CheckpointMismatchError: names each entry that differs with both values.
    """
    before: Mapping[str, Any] = {}
    if settings is not None and checkpoint.has_file(TRAINING_ARGS_FILE):
        before = checkpoint.document(TRAINING_ARGS_FILE)
    names = (before, settings or {}) if before else ({}, {})
    lines = _differences(checkpoint.manifest, current, topology, *names)
    if not lines:
        return
    shown = "\n".join(f"  - {line}" for line in lines[:8])
    more = f"\n  ... and {len(lines) - 8} more" if len(lines) > 8 else ""
    hint = ""
    if topology == "same" and not _differences(checkpoint.manifest, current, "any", *names):
        hint = (
            "Only the number of processes or the strategy differs: resume_topology='any' goes on "
            "with data position and optimizer state exact, and says what is not. "
        )
    raise CheckpointMismatchError(
        f"'{checkpoint.path.name}' belongs to another plan than this run, so resuming would not "
        f"be exact:\n{shown}{more}\n{hint}Restore these settings to resume. {_WARM_START}"
    )


def _differences(
    manifest: Mapping[str, Any],
    current: Mapping[str, Any],
    topology: str,
    saved_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[str]:
    keys = ["model_type", "adapter", "optimizer_names"]
    saved, now = manifest["resume_signature"], current["resume_signature"]
    if topology == "any":
        saved, now = without_topology(saved), without_topology(now)
    else:
        keys.append("strategy")
    lines = [
        f"{key}: checkpoint={manifest.get(key)!r}, current={current[key]!r}"
        for key in keys
        if manifest.get(key) != current[key]
    ]
    found = described(compare_signatures(saved, now), saved_settings, settings)
    # Few are shown. A setting that was changed says more than the many layers that follow from it.
    return lines + sorted(found, key=lambda line: ".modules." in line)


def check_same_directory(checkpoint: Checkpoint, run_dir: Path) -> None:
    """Refuse to go on in a directory that holds checkpoints of another run.

    Raises:
        FileExistsError: it does; saving there would collide with them later.
    """
    for other in list_checkpoints(run_dir):
        owner = checkpoint_run_id(other)
        if owner != checkpoint.run_id:
            raise FileExistsError(
                f"'{run_dir}' holds {other.name} of run {owner}, but '{checkpoint.path}' is of run "
                f"{checkpoint.run_id}. Resume into the directory of its own run, or an empty one."
            )


def forget_absent_best(state: TrainerState, run_dir: Path) -> None:
    """A resume into another directory leaves the best checkpoint behind: the search starts anew."""
    state.best_checkpoints = [
        kept for kept in state.best_checkpoints if (run_dir / kept[0]).is_dir()
    ]
    name = state.best_model_checkpoint
    if name is not None and not (run_dir / name).is_dir():
        logger.warning(
            "The best checkpoint so far, %s, is not in '%s': the best is looked for among what "
            "follows.",
            name,
            run_dir,
        )
        state.best_model_checkpoint = state.best_metric = state.best_global_step = None


def restore(
    checkpoint: Checkpoint,
    *,
    graph: Graph,
    schedulers: SchedulerBundle,
    strategy: TrainingStrategy,
    scaler: Any,
    callbacks: CallbackHandler,
    progress: LogWindow,
) -> TrainerState:
    """Load everything back; random states last, so that nothing draws after them."""
    document = checkpoint.document("trainer_state.json")
    runtime = checkpoint.runtime()
    if document["state"]["global_step"] != checkpoint.manifest["global_step"]:
        raise CheckpointError(
            f"'{checkpoint.path.name}': trainer_state.json is at step "
            f"{document['state']['global_step']}, the manifest at "
            f"{checkpoint.manifest['global_step']}."
        )
    if (scaler is None) != (checkpoint.scaler() is None):
        raise CheckpointMismatchError(
            f"'{checkpoint.path.name}': gradient scaling differs between checkpoint and run."
        )
    with strategy.whole_model(graph.model, write_back=True):
        graph.adapter.load_state_dict(checkpoint.tensors())
    graph.adapter.load_recipe_state_dict(runtime["recipe"])
    saved = checkpoint.optimizer()
    if strategy.holds_parts:
        optimizers = graph.optimizers.optimizers
        saved = {n: laid_out_like(strategy.part_like, optimizers[n], s) for n, s in saved.items()}
    graph.optimizers.load_state_dict(saved)
    schedulers.load_state_dict(checkpoint.scheduler())
    if scaler is not None:
        scaler.load_state_dict(checkpoint.scaler())
    strategy.load_state_dict(runtime["strategy"])
    callbacks.load_state_dict(runtime["callbacks"])
    progress.load_state_dict(document["log_window"])
    others = runtime.get("random_states", [])
    random_states = [checkpoint.rng(), *others]
    if strategy.rank < len(random_states):
        restore_random_state(random_states[strategy.rank])
    return TrainerState.from_dict(document["state"])

"""From a configured Trainer to a run that stands before its next update."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.checkpoints.litter import remove_litter
from voicehub.checkpoints.manifest import read_manifest
from voicehub.checkpoints.reader import Checkpoint, open_checkpoint
from voicehub.data.keyed_random import derive_seed
from voicehub.optim.bundle import SchedulerBundle
from voicehub.strategies.environment import restarts
from voicehub.trainer import composition, passes, resume, saving
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.fillers import Fillers
from voicehub.trainer.horizon import Horizon, plan_horizon
from voicehub.trainer.loop import LoopActions, TrainingLoop
from voicehub.trainer.nonfinite import DIRECTORY as DUMPS_DIRECTORY
from voicehub.trainer.nonfinite import NonFiniteDumps
from voicehub.trainer.progress import LogWindow
from voicehub.trainer.topology import describe_change
from voicehub.trainer.window import AccumulationWindow

if TYPE_CHECKING:
    from voicehub.trainer.trainer import Trainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartedRun:
    """A run that is ready: its loop, and what the Trainer needs while it goes on."""

    loop: TrainingLoop
    feed: DataFeed
    schedulers: SchedulerBundle
    saver: saving.CheckpointSaver
    restored_from: Path | None


@dataclass(frozen=True)
class _Parts:
    """What the plan and the data determine, before anything is restored."""

    feed: DataFeed
    horizon: Horizon
    schedulers: SchedulerBundle
    scaler: Any
    progress: LogWindow


def start_run(trainer: Trainer, resume_from: bool | str | Path | None) -> StartedRun:
    """Build what the run needs and restore a checkpoint when asked to.

    Everything that can be refused is refused before the run directory or the model changes;
    random states are restored last, so that nothing draws after them. What fails on one process is
    told to the others, who wait for it in what they do together.
    """
    try:
        return _start(trainer, resume_from)
    except BaseException as error:
        trainer.strategy.report_failure(error)
        raise


def _start(trainer: Trainer, resume_from: bool | str | Path | None) -> StartedRun:
    args, graph = trainer.args, trainer.graph
    if not resume_from and restarts() and latest_checkpoint(trainer.run_dir) is not None:
        resume_from = True  # torchrun has started this very run again after a failure
    parts = _build_parts(trainer)
    identity = _identity(trainer, parts)
    composition.seed_everything(_seed_of_process(args.seed, trainer.strategy.rank))
    found = trainer.strategy.on_primary(
        lambda: _prepare_directory(trainer, resume_from, identity), what="the run directory"
    )
    restored_from = None if found["checkpoint"] is None else Path(found["checkpoint"])
    if restored_from is not None:
        trainer.state = resume.restore(
            # Every file was verified by the process that found it.
            Checkpoint(restored_from, read_manifest(restored_from)),
            graph=graph,
            schedulers=parts.schedulers,
            strategy=trainer.strategy,
            scaler=parts.scaler,
            callbacks=trainer.callbacks,
            progress=parts.progress,
        )
        # Saved by the first process, read by all.
        trainer.state.is_world_process_zero = trainer.strategy.is_primary
        trainer.state.is_local_process_zero = trainer.strategy.is_local_primary
        resume.forget_absent_best(trainer.state, trainer.run_dir)
        change = describe_change(found["signature"], identity["resume_signature"])
        if change is not None and trainer.strategy.is_primary:
            logger.warning("%s", change)
    run_id = found["run_id"]
    trainer.state.max_steps = parts.horizon.max_steps
    trainer.state.num_train_epochs = args.num_train_epochs
    trainer.callbacks.context.update(
        schedulers=parts.schedulers,
        horizon=parts.horizon,
        run_identity=run_id,
        routes=composition.summarize_routes(graph, args, parts.horizon.route_updates),
    )
    saver = saving.CheckpointSaver(
        run_dir=trainer.run_dir,
        run_id=run_id,
        args=args,
        graph=graph,
        schedulers=parts.schedulers,
        strategy=trainer.strategy,
        scaler=parts.scaler,
        callbacks=trainer.callbacks,
        progress=parts.progress,
        identity=identity,
        extra_files=trainer.extra_checkpoint_files,
        on_saved=trainer.report_saved,
    )
    loop = _build_loop(trainer, parts, saver)
    return StartedRun(loop, parts.feed, parts.schedulers, saver, restored_from)


def _seed_of_process(seed: int, rank: int) -> int:
    """Layer dropout draws differently on every process; the first one's is that of a lone one."""
    return seed if rank == 0 else derive_seed("voicehub.rank", seed, rank) % 2**32


def _prepare_directory(
    trainer: Trainer, resume_from: bool | str | Path | None, identity: dict[str, Any]
) -> dict[str, Any]:
    """Make the run directory ready, by one process alone; returns run id and checkpoint."""
    run_dir = trainer.run_dir
    saving.prepare_run_directory(
        run_dir, resuming=bool(resume_from), overwrite=trainer.args.overwrite_output_dir
    )
    run_id, path, signature = uuid.uuid4().hex, None, None
    if resume_from:
        if resume_from is True and restarts():
            checkpoint = resume.open_newest_sound(run_dir)
        elif resume_from is True:
            checkpoint = resume.open_newest(run_dir)
        else:
            checkpoint = open_checkpoint(resume.resolve_checkpoint(resume_from, run_dir))
        resume.check_same_run(
            checkpoint,
            identity,
            topology=trainer.args.resume_topology,
            settings=trainer.args.to_dict(),
        )
        resume.check_same_directory(checkpoint, run_dir)
        run_id, path = checkpoint.run_id, str(checkpoint.path)
        signature = checkpoint.manifest["resume_signature"]
    else:
        saving.put_previous_aside(run_dir / DUMPS_DIRECTORY)
    remove_litter(run_dir, run_id)
    saving.recover_directories(run_dir)
    return {"run_id": run_id, "checkpoint": path, "signature": signature}


def _build_parts(trainer: Trainer) -> _Parts:
    args, graph = trainer.args, trainer.graph
    feed = trainer.train_feed()
    horizon = plan_horizon(args, feed, graph.adapter)
    schedulers = composition.build_schedulers(graph, args, horizon.route_updates, trainer.sources)
    scaler = trainer.strategy.create_grad_scaler()
    trainer.strategy.prepare_optimization(graph.model, graph.optimizers, schedulers)
    return _Parts(feed, horizon, schedulers, scaler, LogWindow())


def _identity(trainer: Trainer, parts: _Parts) -> dict[str, Any]:
    """What a checkpoint's manifest says about the run it belongs to."""
    graph = trainer.graph
    signature = resume.build_signature(
        args=trainer.args,
        graph=graph,
        feed=parts.feed,
        horizon=parts.horizon,
        schedulers=parts.schedulers,
        strategy=trainer.strategy,
        callbacks=trainer.callbacks,
        scaling=parts.scaler is not None,
        plan=trainer.optimization_plan,
    )
    return {
        "model_type": graph.adapter.spec.model_type,
        "adapter": graph.adapter.identity,
        "optimizer_names": sorted(graph.optimizers),
        "strategy": trainer.strategy.name,
        "optimization_plan": passes.manifest_of(trainer.optimization_plan),
        "resume_signature": json.loads(json.dumps(signature, allow_nan=False)),
    }


def build_window(
    trainer: Trainer, feed: DataFeed, schedulers: SchedulerBundle, scaler: Any
) -> AccumulationWindow:
    """Wire what runs one accumulation window of a set-up Trainer."""
    graph = trainer.graph
    return AccumulationWindow(
        model=graph.model,
        adapter=graph.adapter,
        strategy=trainer.strategy,
        optimizers=graph.optimizers,
        schedulers=schedulers,
        scaler=scaler,
        max_grad_norm=trainer.args.max_grad_norm,
        notify=trainer.fire,
        custom_loss=trainer.custom_loss,
        dumps=NonFiniteDumps(
            run_dir=trainer.run_dir,
            state=trainer.state,
            feed=feed,
            adapter=graph.adapter,
            strategy=trainer.strategy,
            device=graph.device,
        ),
        fillers=Fillers(feed.first_batch),
        halve_when_out_of_memory=trainer.args.oom_retry_halves,
    )


def _build_loop(trainer: Trainer, parts: _Parts, saver: saving.CheckpointSaver) -> TrainingLoop:
    actions = LoopActions(
        fire=trainer.fire,
        log=trainer.log,
        evaluate=trainer.evaluate_in_training,
        save=trainer.save_checkpoint,
        settle=saver.settle,
    )
    return TrainingLoop(
        args=trainer.args,
        state=trainer.state,
        control=trainer.control,
        feed=parts.feed,
        window=build_window(trainer, parts.feed, parts.schedulers, parts.scaler),
        strategy=trainer.strategy,
        schedulers=parts.schedulers,
        horizon=parts.horizon,
        progress=parts.progress,
        actions=actions,
    )

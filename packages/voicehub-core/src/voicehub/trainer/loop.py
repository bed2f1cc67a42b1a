"""The training loop: windows, then what is due after each update, then what ends an epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from voicehub.errors import DataError, NonFiniteError
from voicehub.optim.bundle import SchedulerBundle
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.agreement import (
    SharedWindow,
    share_control,
    share_control_later,
    share_window,
)
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.horizon import Horizon
from voicehub.trainer.progress import LogWindow
from voicehub.trainer.read_ahead import ReadAhead
from voicehub.trainer.state import TrainerControl, TrainerState
from voicehub.trainer.window import AccumulationWindow, MicroBatch, UpdateResult, Window

logger = logging.getLogger(__name__)


@dataclass
class LoopActions:
    """What the loop asks for; the Trainer supplies it."""

    fire: Callable[..., None]  # (event, **context): call the callbacks
    log: Callable[[dict[str, Any]], None]
    evaluate: Callable[[bool], bool]  # gets whether a save follows; whether one is worth it
    save: Callable[[], None]
    settle: Callable[[], None]  # report a checkpoint that has been written meanwhile


class TrainingLoop:
    """Drives ``window`` over ``feed`` until the horizon, a callback or an error ends the run."""

    def __init__(
        self,
        *,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        feed: DataFeed,
        window: AccumulationWindow,
        strategy: TrainingStrategy,
        schedulers: SchedulerBundle,
        horizon: Horizon,
        progress: LogWindow,
        actions: LoopActions,
    ) -> None:
        self.args = args
        self.state = state
        self.control = control
        self.feed = feed
        self.window = window
        self.strategy = strategy
        self.schedulers = schedulers
        self.horizon = horizon
        self.progress = progress
        self.actions = actions
        self._reading = ReadAhead(iter(()))  # of the epoch that is on; several processes alone
        self.samples_read = 0  # by all processes
        self._last_save = state.global_step  # a resumed run stands at a saved step

    def run(self) -> None:
        """Train to the end; ``state`` says where it stood when it returned."""
        if self.strategy.world_size > 1:  # ``on_train_begin`` may have asked one process to stop
            share_control(self.strategy, self.control)
        self._end_epoch_if_read()  # a checkpoint may lie between the last batch and the epoch's end
        while not self._is_over():
            self._run_epoch()
        self._finish()

    def _is_over(self) -> bool:
        state, epochs = self.state, self.horizon.num_epochs
        return (
            self.control.should_training_stop
            or state.global_step >= self.horizon.max_steps
            or (epochs is not None and state.train_epoch >= epochs)
        )

    def _run_epoch(self) -> None:
        state, control = self.state, self.control
        control.should_epoch_stop = False
        num_batches = self.feed.num_batches(state.train_epoch)
        self.actions.fire("on_epoch_begin")
        self.strategy.barrier()  # callbacks take longer on the process that reports
        for batches, shared in self._windows():
            self._run_window(batches, shared, num_batches)
            if state.global_step >= self.horizon.max_steps:
                control.should_training_stop = True
            if control.should_training_stop or control.should_epoch_stop:
                break
        else:
            self._end_read_epoch()
            return
        if control.should_epoch_stop:
            self._end_epoch()
        else:
            self._end_epoch_if_read()

    def _windows(self) -> Iterator[tuple[list[MicroBatch], SharedWindow | None]]:
        """Windows of what is left of the epoch, until no process has a micro-batch left."""
        state = self.state
        windows = self.feed.windows(
            state.train_epoch, state.train_batch_cursor, self._add_waiting_time
        )
        if self.strategy.world_size == 1:
            for batches in windows:
                yield batches, None
            return
        self._reading = ReadAhead(windows)
        while True:
            batches, problem = self._reading.take()
            shared = share_window(
                self.strategy,
                batches,
                step=state.global_step,
                labels=self.window.count_labels(batches),
                problem=problem,
            )
            # What the others hold is looked at later, while their share is on its way.
            if (problem is not None or not batches) and not shared.found().micro_batches:
                return
            yield batches, shared

    def _end_read_epoch(self) -> None:
        if self.state.train_batch_cursor == 0:
            raise DataError(f"Epoch {self.state.train_epoch} gave no batch: nothing to train on.")
        self._end_epoch()

    def _end_epoch_if_read(self) -> None:
        state = self.state
        num_batches = self.feed.num_batches(state.train_epoch)
        if num_batches is not None and 0 < num_batches <= state.train_batch_cursor:
            self._end_epoch()

    def _run_window(
        self, batches: list[MicroBatch], shared: SharedWindow | None, num_batches: int | None
    ) -> None:
        state = self.state
        self.actions.fire("on_step_begin")
        if shared is None:
            for batch in batches:
                self.samples_read += batch.size
                self.progress.add_batch(batch.size, batch.info)
        result = self.window.run(Window(batches, state.global_step, state.epoch, shared))
        if shared is None:
            state.train_batch_cursor += len(batches)
        else:
            whole = shared.found()
            self.samples_read += whole.samples
            self.progress.add_batch(whole.samples, whole.info)
            state.train_batch_cursor += whole.micro_batches
        if num_batches is not None:
            state.epoch = state.train_epoch + state.train_batch_cursor / num_batches
        self.actions.settle()
        if result.skipped is not None:
            self._count_skipped(result, batches)
        if result.stepped:
            state.global_step += 1
            state.loss_total += result.loss
            self.progress.add(result)
            if result.skipped is None:
                state.nonfinite_in_a_row = 0
            self.actions.fire("on_step_end")
            self._ask_by_step()
            self._act()
        elif self.strategy.world_size > 1:
            share_control(self.strategy, self.control)

    def _count_skipped(self, result: UpdateResult, batches: list[MicroBatch]) -> None:
        """An update that was not finite: say which samples, and give up after too many."""
        state = self.state
        state.skipped_steps += 1
        state.nonfinite_in_a_row += 1
        own = [str(i) for batch in batches for i in batch.info.get("ids", ())]
        ids = [i for found in self.strategy.exchange(own, what="skipped samples") for i in found]
        shown = ", ".join(ids[:16]) + (f" and {len(ids) - 16} more" if len(ids) > 16 else "")
        logger.warning(
            "Update skipped after step %d: %s. Samples: %s",
            state.global_step,
            result.skipped,
            shown or "(the batches carry no ids)",
        )
        self.actions.fire("on_step_skipped", reason=result.skipped, ids=ids)
        if state.nonfinite_in_a_row >= self.args.max_nonfinite_steps:
            raise NonFiniteError(
                f"{state.nonfinite_in_a_row} updates in a row were skipped "
                f"(max_nonfinite_steps), the last because {result.skipped}. Samples of the last "
                f"one: {shown or 'unknown'}. The weights are those of step {state.global_step}. "
                "Check these samples, lower learning_rate, or use bf16 or full precision."
            )

    def _ask_by_step(self) -> None:
        """Set what is due after this update, by step counts."""
        args, step, control = self.args, self.state.global_step, self.control
        if args.logging_strategy == "steps" and (
            step % args.logging_steps == 0 or (step == 1 and args.logging_first_step)
        ):
            control.should_log = True
        if args.eval_strategy == "steps" and step % (args.eval_steps or args.logging_steps) == 0:
            control.should_evaluate = True
        if args.save_strategy == "steps" and step % args.save_steps == 0:
            control.should_save = True

    def _end_epoch(self) -> None:
        args, state, control = self.args, self.state, self.control
        self.actions.fire("on_epoch_end")
        state.train_epoch += 1
        state.train_batch_cursor = 0
        state.epoch = float(state.train_epoch)
        control.should_log |= args.logging_strategy == "epoch"
        control.should_evaluate |= args.eval_strategy == "epoch"
        control.should_save |= args.save_strategy == "epoch"
        self._act()

    def _act(self) -> None:
        """Log, evaluate, save, in this order, each at most once a step."""
        control, step = self.control, self.state.global_step
        several = self.strategy.world_size > 1
        if several:
            others = share_control_later(self.strategy, control)
            if self._goes_on():
                self._reading.read()
            others()
        if control.should_log:
            control.should_log = False
            self._log()
            self._share()
        if control.should_evaluate:
            control.should_evaluate = False
            if self.state.last_evaluation_step != step:
                self.state.last_evaluation_step = step
                self._evaluate()
                self._share()
        if control.should_save:
            control.should_save = False
            if self._last_save != step:
                self._last_save = step
                self.actions.save()
                self._share()

    def _share(self) -> None:
        """Callbacks may have asked for something on one rank, or taken longer there."""
        if self.strategy.world_size > 1:
            share_control(self.strategy, self.control)

    def _goes_on(self) -> bool:
        """Whether this process expects to read the next window of this epoch at once."""
        state, control = self.state, self.control
        num_batches = self.feed.num_batches(state.train_epoch)
        left = num_batches is not None and 0 < state.train_batch_cursor < num_batches
        due = control.should_evaluate or control.should_save or control.should_epoch_stop
        over = control.should_training_stop or state.global_step >= self.horizon.max_steps
        return left and not due and not over

    def _evaluate(self) -> None:
        control = self.control
        saving = control.should_save or self._last_save == self.state.global_step
        if self.actions.evaluate(saving):
            control.should_save |= self.args.load_best_model_at_end

    def _log(self) -> None:
        if self.state.last_log_step == self.state.global_step or not self.progress.updates:
            return
        self.state.last_log_step = self.state.global_step
        row: dict[str, Any] = dict(self.progress.flush())
        rates = self.schedulers.learning_rates()
        if len(rates) == 1:
            row["learning_rate"] = next(iter(rates.values()))
        else:
            row.update({f"learning_rate/{name}": rate for name, rate in rates.items()})
        if self.state.skipped_steps:
            row["skipped_steps"] = self.state.skipped_steps
        self.actions.log(row)

    def _finish(self) -> None:
        """The last checkpoint and the last log row, where the intervals did not fall due.

        In this order: the checkpoint keeps the sums of a log window that is not over, so that a
        run which was only stopped logs the same rows when it goes on.
        """
        if self.args.save_strategy != "no" and self._last_save != self.state.global_step:
            self.actions.save()
        if self.args.logging_strategy != "no":
            self._log()

    def _add_waiting_time(self, seconds: float) -> None:
        self.progress.waited += seconds

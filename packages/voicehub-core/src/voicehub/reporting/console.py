"""Progress on the console: a live panel on a terminal, a plain line for each log row elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from voicehub.reporting import figures
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.panel import Panel

    from voicehub.adapters.experiment import FigureNote

_REFRESH = 4  # panel frames a second


class ConsoleCallback(TrainerCallback):
    """Shows loss, learning rate, gradient norm, speed, data wait, padding waste and the ETA.

    Args:
        name: title of the run.
        stream: where to print; standard output by default (standard error with ``--json``).
        live: force the panel or the plain lines; by default the panel where ``stream`` is a
            terminal.
        notes: what the family's figures mean; healthy bands stand beside them on the panel.
    """

    #: The trainer leaves it to this callback to show alerts.
    shows_alerts = True

    def __init__(
        self,
        name: str = "",
        stream: IO[str] | None = None,
        live: bool | None = None,
        notes: Sequence[FigureNote] = (),
    ) -> None:
        self.name = name
        self.notes = tuple(notes)
        self._stream = stream or sys.stdout
        self._wants_live = live
        self._state: TrainerState | None = None
        self._logs: dict[str, Any] = {}
        self._metrics: dict[str, float] = {}
        self._weights: dict[str, str] = {}  # of which each metric is, in a run with averages
        self._losses: deque[float] = deque(maxlen=200)
        self._notes: deque[str] = deque(maxlen=3)
        self._started = 0.0
        self._first_step = 0
        self._live: Live | None = None

    # -- events ---------------------------------------------------------------------------

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Start the clock and, on a terminal, the panel."""
        if not state.is_world_process_zero:
            return
        self._state = state
        self._started, self._first_step = time.perf_counter(), state.global_step
        self._tell_what_decides()
        console = self._console()
        if self._wants_live if self._wants_live is not None else console.is_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._panel, console=console, refresh_per_second=_REFRESH
            )
            self._live.start()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Take over the newest numbers; without a panel, print them."""
        if not state.is_world_process_zero:
            return
        logs: Mapping[str, Any] = context.get("logs") or {}
        metrics = figures.evaluation_metrics(logs)
        if metrics:
            self._metrics.update(metrics)
            self._weights.update(figures.weights_of([logs]))
            self._print("evaluation", self._pairs_of(metrics), state)
        elif "loss" in logs:
            self._logs.update(logs)
            self._losses.append(float(logs["loss"]))
            self._print("step", figures.shown(logs), state, with_eta=True)

    def on_checkpoint_saved(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Name the checkpoint."""
        checkpoint = context.get("checkpoint")
        if checkpoint is not None and state.is_world_process_zero:
            self._note(f"saved {getattr(checkpoint, 'name', checkpoint)}")

    def on_alert(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Show a health alert at once; on a terminal it stays above the panel."""
        if not state.is_world_process_zero:
            return
        text = f"warning: {context.get('alert')}"
        if self._live is not None:
            self._live.console.print(text, style="yellow", markup=False, highlight=False)
        self._note(text)

    def tell(self, text: str) -> None:
        """Print a line; on a terminal it stays above the panel."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream, flush=True)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Leave the last frame standing."""
        self.close()

    def on_train_error(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Give the terminal back before the error is printed."""
        self.close()

    def close(self) -> None:
        """Stop the panel; safe to call twice."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    # -- plain lines ----------------------------------------------------------------------

    def _print(
        self,
        what: str,
        pairs: list[tuple[str, str]],
        state: TrainerState,
        *,
        with_eta: bool = False,
    ) -> None:
        if self._live is not None:
            return
        position = f"{what} {state.global_step}/{state.max_steps}"
        cells = [f"{label} {value}" for label, value in pairs]
        if with_eta:
            cells.append(f"ETA {figures.clock(self._remaining())}")
        print("  ".join([position, *cells]), file=self._stream, flush=True)

    def _note(self, text: str) -> None:
        if self._live is not None:
            self._notes.append(text)
        else:
            print(text, file=self._stream, flush=True)

    # -- what figures mean --------------------------------------------------------------------

    def _tell_what_decides(self) -> None:
        deciding = [note.name for note in self.notes if note.decides]
        if deciding:
            text = f"What decides: {', '.join(deciding)}. The report says what each figure means."
            print(text, file=self._stream, flush=True)

    def _band(self, label: str) -> str:
        """The healthy band of a figure, by its label."""
        for note in self.notes:
            labels = (figures.label_of(f"loss/{note.key}"), figures.label_of(f"eval_{note.key}"))
            if label in labels and note.brief:
                return f"healthy: {note.brief}"
        return ""

    # -- the panel ------------------------------------------------------------------------

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self._stream)

    def _remaining(self) -> float:
        if self._state is None:
            return 0.0
        done = self._state.global_step - self._first_step
        if done <= 0:
            return 0.0
        elapsed = time.perf_counter() - self._started
        return elapsed / done * max(0, self._state.max_steps - self._state.global_step)

    def _panel(self) -> Panel:
        """One frame. Drawn by rich's own thread: it reads what the callbacks stored, no more."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        state = self._state or TrainerState()
        elapsed = time.perf_counter() - self._started
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right")
        total = max(1, state.max_steps)
        position = f"step {state.global_step:,} of {state.max_steps:,}   epoch {state.epoch:.2f}"
        times = f"{figures.clock(elapsed)} gone   ETA {figures.clock(self._remaining())}"
        head.add_row(Text(position, style="bold"), Text(times))
        body = Table.grid(padding=(0, 3))
        for label, value in figures.shown(self._logs):
            extra = figures.spark(self._losses) if label == "loss" else self._band(label)
            body.add_row(Text(label, style="dim"), Text(value), Text(extra, style="cyan"))
        for label, value in self._pairs_of(self._metrics):
            extra = self._band(label)
            body.add_row(Text(label, style="dim"), Text(value, style="green"), Text(extra))
        notes = [Text(note, style="yellow") for note in self._notes]
        line = Table.grid(expand=True)  # a bare ProgressBar ends without a line break
        line.add_row(ProgressBar(total=total, completed=min(total, state.global_step)))
        title = Text(f"training {self.name}".strip())
        return Panel(Group(head, line, body, *notes), title=title, title_align="left")

    def _pairs_of(self, metrics: Mapping[str, float]) -> list[tuple[str, str]]:
        return [
            (figures.label_of(key, self._weights.get(key)), figures.number(key, value))
            for key, value in metrics.items()
        ]

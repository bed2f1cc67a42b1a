"""Averages whose width can be chosen after training: tracked in every step, stored now and then."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from voicehub.optim.ema import PowerFunctionAverage, WeightAverage
from voicehub.optim.power_profiles import gamma_of
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.average_snapshots import FOLDER, discard_newer, write_snapshot
from voicehub.trainer.averaging import AveragingCallback
from voicehub.trainer.saving import put_previous_aside, recover_directories
from voicehub.trainer.state import TrainerControl, TrainerState

logger = logging.getLogger(__name__)


class PostHocEMACallback(AveragingCallback):
    """Tracks the power-function averages of ``posthoc_ema_sigma_rels`` and stores them.

    A snapshot is written every ``posthoc_ema_snapshot_steps`` updates and after the last one, so
    that a run shorter than an interval has one, too. The first width is what evaluations and
    ``final-model-ema`` take.
    """

    kind = "power-function"

    def __init__(self, args: TrainingArguments) -> None:
        super().__init__()
        self._widths = {repr(sigma): gamma_of(sigma) for sigma in args.posthoc_ema_sigma_rels}
        self._interval = args.posthoc_ema_snapshot_steps
        self._options: dict[str, Any] = {
            "buffer_policy": args.ema_buffers,
            "offload": args.posthoc_ema_offload,
        }
        self._run_dir = Path(args.output_dir)
        self._run_id: str | None = None
        self._stored_at = 0

    def _build(self, module: nn.Module, held: Mapping[str, Tensor]) -> dict[str, WeightAverage]:
        return {
            name: PowerFunctionAverage(module, held, gamma=gamma, **self._options)
            for name, gamma in self._widths.items()
        }

    def describe(self) -> dict[str, Any]:
        """As for every average, with the run that stored averages carry and all tracked widths."""
        own = {"tracked": [float(name) for name in self._widths], "run_id": self._run_id}
        return {**super().describe(), **own}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Put aside what another run has stored here, or what a resumed one will store again."""
        super().on_train_begin(args, state, control, **context)
        self._run_id = str(context["run_identity"])
        self._stored_at = 0
        fresh = context.get("resumed_from") is None
        updates = self.ema.updates
        self._strategy.on_primary(
            lambda: _prepare(self._run_dir, None if fresh else updates),
            what="the folder of averages",
        )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Take in the new weights, and store the averages where it is due."""
        super().on_step_end(args, state, control, **context)
        if self.ema.updates % self._interval == 0:
            self._store()

    def finish(self) -> None:
        """Store the averages after the last update."""
        self._store()

    def _store(self) -> None:
        step = self.ema.updates
        if step == 0 or self._stored_at == step or self._run_id is None:
            return
        self._stored_at, run_id = step, self._run_id
        whole = []
        for name, average in self.averages.items():
            tensors = self.gathered(average)
            if self._strategy.is_primary:
                whole.append((float(name), self._widths[name], tensors))
        self._strategy.on_primary(
            lambda: str(write_snapshot(self._run_dir, run_id=run_id, step=step, averages=whole)),
            what="a snapshot of averages",
        )

    def state_dict(self) -> dict[str, Any]:
        """All averages and their counts, as live tensors: whoever keeps them copies them.

        All processes must call it where each holds a part of the weights.
        """
        return {
            "averages": {
                name: {"updates": average.updates, "shadows": self.gathered(average)}
                for name, average in self.averages.items()
            }
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``."""
        for name, average in self.averages.items():
            self.take(average, state["averages"][name])

    def resume_fingerprint(self) -> dict[str, Any]:
        """Widths and buffers: others are another run. When snapshots are due is not part of it."""
        return {
            "sigma_rels": [float(name) for name in self._widths],
            "buffer_policy": self._options["buffer_policy"],
        }


def _prepare(run_dir: Path, resumed_at: int | None) -> list[int]:
    """Leave in the folder what this run, standing at ``resumed_at`` (None: new), has stored."""
    folder = run_dir / FOLDER
    if resumed_at is None:
        put_previous_aside(folder)
        return []
    if not folder.is_dir():
        return []
    recover_directories(folder)
    dropped = discard_newer(run_dir, resumed_at)
    if dropped:
        logger.info(
            "Averages stored after step %d (%s) are dropped: this run goes on from there.",
            resumed_at,
            ", ".join(map(str, dropped)),
        )
    return dropped

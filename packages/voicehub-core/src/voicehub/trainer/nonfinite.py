"""Dumps of updates that were not finite: everything that running one of them again takes.

``nonfinite/step-<n>/`` in the run directory holds

* ``dump.json``: the reason, where in the run it was, the phases, and for every micro-batch the
  ``SampleKey`` and id of each sample, with which the same batches can be formed again;
* ``weights.safetensors``: the model as the update would have changed it;
* ``state.pt``: the random states before the forward, and the recipe's own state.

``voicehub.trainer.replay`` runs one again.
"""

from __future__ import annotations

import logging
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from voicehub.adapters.base import TrainingAdapter
from voicehub.checkpoints.codec import encode_state
from voicehub.checkpoints.strict_json import dump_json
from voicehub.checkpoints.tensor_file import write_tensors
from voicehub.specs.phase import TrainingPhaseSpec
from voicehub.trainer.feed import DataFeed
from voicehub.trainer.random_record import RandomRecord, RandomStates
from voicehub.trainer.state import TrainerState
from voicehub.trainer.window import Window

if TYPE_CHECKING:
    from voicehub.strategies.base import TrainingStrategy

logger = logging.getLogger(__name__)

DIRECTORY = "nonfinite"
DUMP_FILE, WEIGHTS_FILE, STATE_FILE = "dump.json", "weights.safetensors", "state.pt"
FORMAT = 2
MOST = 3
"""Dumps a run: each holds the weights, and the first ones tell what there is to learn."""


class NonFiniteDumps:
    """Writes the first dumps of a run; those of before a resume count."""

    def __init__(
        self,
        *,
        run_dir: Path,
        state: TrainerState,
        feed: DataFeed,
        adapter: TrainingAdapter,
        strategy: TrainingStrategy,
        device: str,
    ) -> None:
        self.directory = run_dir / DIRECTORY
        self.state = state
        self.feed = feed
        self.adapter = adapter
        self.strategy = strategy
        self._record = RandomRecord(device)
        existing = list(self.directory.glob("step-*")) if self.directory.is_dir() else []
        # The same on all processes: to write one may be a joint act.
        self._left = min(strategy.exchange(MOST - len(existing), what="dumps that may be written"))

    def random_states(self) -> RandomStates | None:
        """Return the random states now, for ``write``; None where no dump will be written."""
        return self._record.take() if self._left > 0 else None

    def write(
        self,
        reason: str,
        window: Window,
        phases: Sequence[TrainingPhaseSpec],
        random: RandomStates | None,
    ) -> Path | None:
        """Write a dump of a window whose phases gave no finite update, and return its directory.

        A dump that cannot be written costs a warning, not the run.
        """
        if self._left <= 0 or random is None:
            return None
        self._left -= 1
        with self.strategy.whole_model(self.adapter.module):
            return self._write(reason, window, phases, random)

    def _write(
        self,
        reason: str,
        window: Window,
        phases: Sequence[TrainingPhaseSpec],
        random: RandomStates,
    ) -> Path | None:
        target = self._free_name(window.step)
        try:
            target.mkdir(parents=True)
            document = self._document(reason, window, phases)
            (target / DUMP_FILE).write_bytes(dump_json(document, DUMP_FILE))
            write_tensors(target / WEIGHTS_FILE, _plain(self.adapter.state_dict()))
            state = {"random": random.plain(), "recipe": self.adapter.recipe_state_dict()}
            torch.save(encode_state(state, "dump"), target / STATE_FILE)
        except Exception as error:
            shutil.rmtree(target, ignore_errors=True)
            logger.warning("The update that was not finite could not be dumped: %s", error)
            return None
        logger.warning("Dumped. Run it again with: voicehub debug replay %s", target)
        return target

    def _free_name(self, step: int) -> Path:
        rank = f"-rank-{self.strategy.rank}" if self.strategy.world_size > 1 else ""
        names = [f"step-{step}{rank}", *(f"step-{step}{rank}-{n}" for n in range(2, MOST + 2))]
        return next(self.directory / name for name in names if not (self.directory / name).exists())

    def _document(
        self, reason: str, window: Window, phases: Sequence[TrainingPhaseSpec]
    ) -> dict[str, Any]:
        state = self.state
        keys = self.feed.sample_keys(state.train_epoch, state.train_batch_cursor)
        return {
            "format": FORMAT,
            "reason": reason,
            "step": window.step,
            "epoch": window.epoch,
            "train_epoch": state.train_epoch,
            "first_batch": state.train_batch_cursor,
            "phases": [phase.name for phase in phases],
            "world_size": self.strategy.world_size,
            "micro_batches": [
                {
                    "ids": [str(name) for name in batch.info.get("ids", ())],
                    "keys": None if keys is None else [list(key) for key in keys[number]],
                    "phase": batch.phase,
                }
                for number, batch in enumerate(window.batches)
            ],
            "adapter": self.adapter.identity,
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
        }


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

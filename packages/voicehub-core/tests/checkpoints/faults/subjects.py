"""What a sweep of failures saves through: the writer itself, the Trainer, and ``save_model``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from voicehub.checkpoints.layout import latest_checkpoint, list_checkpoints
from voicehub.checkpoints.litter import remove_litter
from voicehub.checkpoints.reader import Checkpoint, open_checkpoint
from voicehub.checkpoints.rotation import rotate
from voicehub.checkpoints.snapshot import CheckpointPayload
from voicehub.checkpoints.writer import write_checkpoint
from voicehub.errors import CheckpointError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.saving import recover_directories
from voicehub.trainer.trainer import Trainer

logging.getLogger("voicehub").setLevel(logging.ERROR)
FIELDS = {"run_id": "faults"}


class Subject(Protocol):
    """All of these run in processes of their own."""

    def prepare(self, run_dir: Path) -> None:
        """Make what lies there before the save that is struck."""

    def save(self, run_dir: Path) -> None:
        """The save that is struck."""

    def after_failure(self, run_dir: Path, error: Exception) -> None:
        """In the process that failed, with room and a sound disk again."""

    def check(self, run_dir: Path) -> None:
        """What is there must be sound before anybody repairs it."""

    def next_start(self, run_dir: Path) -> None:
        """Start again: litter goes, and saving succeeds."""


class WriterSubject:
    """``write_checkpoint`` and rotation, as the writing thread of the Trainer calls them."""

    def prepare(self, run_dir: Path) -> None:
        for step in (1, 2):
            write_checkpoint(run_dir, step, self._payload(step), FIELDS)

    def save(self, run_dir: Path) -> None:
        # Step 2 is replaced, as after a resume from step 1; step 3 is new, and 1 rotates away.
        for step in (2, 3):
            self._save(run_dir, step)

    def after_failure(self, run_dir: Path, error: Exception) -> None:
        assert isinstance(error, CheckpointError), repr(error)
        assert "could not be written" in str(error) or "could not be removed" in str(error), error
        self._save(run_dir, 4)
        assert self._verify(run_dir) == 4

    def check(self, run_dir: Path) -> None:
        assert self._verify(run_dir) >= 1
        for path in list_checkpoints(run_dir):
            self._verify_one(open_checkpoint(path))

    def next_start(self, run_dir: Path) -> None:
        remove_litter(run_dir, FIELDS["run_id"])
        assert_clean(run_dir)
        self._save(run_dir, 5)
        assert self._verify(run_dir) == 5
        assert_clean(run_dir)

    def _save(self, run_dir: Path, step: int) -> None:
        path = write_checkpoint(run_dir, step, self._payload(step), FIELDS)
        rotate(run_dir, FIELDS["run_id"], 2, [path])

    def _payload(self, step: int) -> CheckpointPayload:
        """The state of the run at a step: a function of the step alone."""
        generator = torch.Generator().manual_seed(step)
        weights = torch.randn(2000, generator=generator)
        return CheckpointPayload(
            {"weights": weights, "bias": weights[:3] + 1},
            {"moment": weights * 2},
            rng_state={"cpu": generator.get_state()},
            runtime={"step": step},
            documents={"trainer_state.json": {"global_step": step}},
            extra_files={"processor": lambda path: _directory(path, step)},
        )

    def _verify(self, run_dir: Path) -> int:
        latest = latest_checkpoint(run_dir)
        assert latest is not None, "no complete checkpoint is left"
        return self._verify_one(open_checkpoint(latest))

    def _verify_one(self, checkpoint: Checkpoint) -> int:
        step = checkpoint.step
        expected = self._payload(step)
        for name, tensor in checkpoint.tensors().items():
            assert torch.equal(tensor, expected.tensors[name])
        assert torch.equal(checkpoint.optimizer()["moment"], expected.optimizer["moment"])
        assert checkpoint.runtime() == {"step": step}
        assert (checkpoint.path / "processor" / "step.txt").read_text() == str(step)
        return step


class Regressor(nn.Module):
    """Six weights and a dropout, so that a lost random state would show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        hidden = nn.functional.dropout(self.layer(features), 0.3, self.training)
        return {"loss": hidden.square().mean()}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    deterministic = True

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"features": torch.full((3,), float(index)).cos()}


class TrainerSubject:
    """A resumed run that saves every step off the training thread, keeps two, and goes on."""

    def prepare(self, run_dir: Path) -> None:
        self._train(run_dir, resume=False, stop_at=1)
        self._train(run_dir.parent / "whole", resume=False)

    def save(self, run_dir: Path) -> None:
        self._train(run_dir, resume=True)

    def after_failure(self, run_dir: Path, error: Exception) -> None:
        # The metrics file is in the run directory too and may be what failed.
        assert isinstance(error, (CheckpointError, OSError)), repr(error)
        self._train(run_dir, resume=True)
        self._assert_exact(run_dir)

    def check(self, run_dir: Path) -> None:
        for path in list_checkpoints(run_dir):
            assert open_checkpoint(path).tensors()
        assert latest_checkpoint(run_dir) is not None

    def next_start(self, run_dir: Path) -> None:
        self._train(run_dir, resume=True)
        self._assert_exact(run_dir)
        assert_clean(run_dir)

    def _assert_exact(self, run_dir: Path) -> None:
        roots = (run_dir.parent / "whole", run_dir)
        files = [root / "checkpoint-3" / "model_state.safetensors" for root in roots]
        assert files[0].read_bytes() == files[1].read_bytes(), "the resumed run differs"

    def _train(self, run_dir: Path, *, resume: bool, stop_at: int | None = None) -> None:
        torch.manual_seed(0)
        arguments = TrainingArguments(
            output_dir=str(run_dir),
            per_device_train_batch_size=4,
            max_steps=3,
            learning_rate=0.1,
            save_steps=1,
            save_total_limit=2,
            logging_steps=1,
            use_cpu=True,
        )
        callbacks = [] if stop_at is None else [_stop_callback(stop_at)]
        trainer = Trainer(
            model=Regressor(), args=arguments, train_dataset=Rows(), callbacks=callbacks
        )
        trainer.train(resume_from_checkpoint=resume)


def _stop_callback(step: int) -> Any:
    from voicehub.trainer.callbacks import TrainerCallback

    class StopAt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            control.should_training_stop = state.global_step >= step

    return StopAt()


class ArtifactSubject:
    """``save_model`` over an older model of the same run."""

    def prepare(self, run_dir: Path) -> None:
        self._save(run_dir, 1.0)

    def save(self, run_dir: Path) -> None:
        self._save(run_dir, 2.0)

    def after_failure(self, run_dir: Path, error: Exception) -> None:
        assert isinstance(error, (OSError, SafetensorError)), repr(error)
        assert self._value(run_dir) in (1.0, 2.0)
        self._save(run_dir, 3.0)
        assert self._value(run_dir) == 3.0

    def check(self, run_dir: Path) -> None:
        """Between two renames a kill leaves no model in its place, but one beside it."""

    def next_start(self, run_dir: Path) -> None:
        recover_directories(run_dir)
        assert_clean(run_dir)
        assert self._value(run_dir) in (1.0, 2.0, 3.0)
        self._save(run_dir, 4.0)
        assert self._value(run_dir) == 4.0
        assert_clean(run_dir)

    def _save(self, run_dir: Path, value: float) -> None:
        model = Regressor()
        torch.nn.init.constant_(model.layer.weight, value)
        arguments = TrainingArguments(output_dir=str(run_dir), use_cpu=True)
        Trainer(model=model, args=arguments, train_dataset=Rows()).save_model()

    def _value(self, run_dir: Path) -> float:
        """The value of all weights, which must be one."""
        directory = run_dir / "final-model"
        for name in ("training_recipe.json", "training_args.json"):
            json.loads((directory / name).read_text())
        [tensors] = [load_file(path) for path in directory.glob("*.safetensors")]
        [value] = set(tensors["layer.weight"].flatten().tolist())
        return float(value)


def _directory(path: Path, step: int) -> None:
    path.mkdir()
    (path / "step.txt").write_text(str(step))


def assert_clean(run_dir: Path) -> None:
    """No hidden file or directory stays in a run directory."""
    litter = sorted(path.name for path in run_dir.iterdir() if path.name.startswith("."))
    assert not litter, litter


SUBJECTS: dict[str, type[Any]] = {
    "writer": WriterSubject,
    "trainer": TrainerSubject,
    "artifact": ArtifactSubject,
}

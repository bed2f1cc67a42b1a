"""What TensorBoard reads back from the event files of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="pip install tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from voicehub_tensorboard.reporter import TensorBoardReporter

from voicehub.errors import ConfigurationError


def read(directory: Path) -> EventAccumulator:
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def losses(events: EventAccumulator, name: str) -> dict[int, float]:
    return {event.step: event.value for event in events.Scalars(name)}


def logged(trainer: Any, key: str) -> dict[int, float]:
    return {r["step"]: pytest.approx(r[key]) for r in trainer.state.log_history if key in r}


def test_scalars_media_and_settings(report_run: Any) -> None:
    trainer = report_run(report_to="tensorboard")
    (directory,) = (trainer.run_dir / "tensorboard").iterdir()
    assert directory.name.startswith("toy-")
    events = read(directory)
    assert losses(events, "train/loss") == logged(trainer, "loss")
    assert losses(events, "eval/dev_other/loss") == logged(trainer, "eval_dev_other_loss")
    tags = events.Tags()
    assert "train/global_step" not in tags["scalars"]
    sample = events.Audio("eval/sample")
    assert [event.step for event in sample] == [2, 4]
    assert sample[0].sample_rate == 8000 and sample[0].length_frames == 800
    assert (events.Images("eval/mel")[0].height, events.Images("eval/mel")[0].width) == (3, 4)
    (text,) = events.Tensors("eval/text/text_summary")[0].tensor_proto.string_val
    assert text == b"    a <b> transcript"
    (settings,) = events.Tensors("training_arguments/text_summary")[0].tensor_proto.string_val
    assert b'"run_name": "toy"' in settings
    assert not [row for row in trainer.state.log_history if "alert" in row]


def test_a_resume_writes_on_and_shows_nothing_twice(report_run: Any) -> None:
    first = report_run(report_to="tensorboard")
    second = report_run(report_to="tensorboard", resume=first.run_dir / "checkpoint-2")
    (directory,) = (first.run_dir / "tensorboard").iterdir()
    assert len(list(directory.iterdir())) == 2
    events = read(directory)
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]
    assert losses(events, "train/loss") == logged(second, "loss")


def test_metrics_after_the_end_go_to_the_same_directory(report_run: Any) -> None:
    trainer = report_run(report_to="tensorboard")
    metrics = trainer.predict(trainer.train_dataset).metrics
    (directory,) = (trainer.run_dir / "tensorboard").iterdir()
    events = read(directory)
    assert losses(events, "test/loss") == {4: pytest.approx(metrics["test_loss"])}
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


def test_a_writer_of_the_user_stays_open(report_run: Any, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "mine"))
    report_run(callbacks=[TensorBoardReporter(writer=writer)])
    assert not (tmp_path / "run" / "tensorboard").exists()
    writer.add_scalar("mine", 1.0, 5)
    writer.close()
    assert len(list((tmp_path / "mine").iterdir())) == 1  # a closed writer would start another
    events = read(tmp_path / "mine")
    assert losses(events, "mine") == {5: 1.0} and len(events.Scalars("train/loss")) == 4


def test_another_place(report_run: Any, tmp_path: Path) -> None:
    options = {"tensorboard": {"log_dir": str(tmp_path / "elsewhere")}}
    report_run(report_to="tensorboard", reporter_options=options)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
    with pytest.raises(ConfigurationError, match="'logdir'.*'log_dir'"):
        report_run(report_to="tensorboard", reporter_options={"tensorboard": {"logdir": "x"}})

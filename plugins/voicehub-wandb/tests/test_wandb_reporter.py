"""What wandb stores of a run in offline mode, read back from its own file."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("wandb") is None:
    pytest.skip("pip install wandb", allow_module_level=True)

import wandb
from voicehub_wandb.options import WandbOptions
from voicehub_wandb.reporter import WandbReporter
from wandb.proto import wandb_internal_pb2

from voicehub.errors import ConfigurationError
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.state import TrainerControl, TrainerState

_BLOCK = 32768  # of the LevelDB log format, which the file is in behind 7 bytes of its own


def records(path: Path) -> list[Any]:
    """The records of a ``.wandb`` file."""
    data, position, parts, found = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            found.append(record)
            parts = b""
    return found


def runs(run_dir: Path) -> dict[Path, list[Any]]:
    wandb.teardown()  # its service process closes the files when it ends
    files = sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))
    return {path: records(path) for path in files}


def history(found: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for record in found:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return rows


def series(rows: list[dict[str, Any]], name: str) -> list[tuple[float, Any]]:
    return [(row["train/global_step"], row[name]) for row in rows if name in row]


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [getattr(r, kind) for r in found if r.WhichOneof("record_type") == kind]


def logged(trainer: Any, key: str) -> list[tuple[float, float]]:
    return [(row["step"], row[key]) for row in trainer.state.log_history if key in row]


@pytest.fixture(autouse=True)
def no_run_is_left_open() -> Any:
    assert wandb.run is None
    yield
    if wandb.run is not None:
        wandb.finish()


def test_scalars_media_and_settings(report_run: Any) -> None:
    trainer = report_run(
        report_to="wandb", wandb_project="recogniser", wandb_tags=["a"], wandb_notes="first"
    )
    assert wandb.run is None
    ((path, found),) = runs(trainer.run_dir).items()
    rows = history(found)
    assert series(rows, "train/loss") == logged(trainer, "loss")
    assert series(rows, "eval/dev_other/loss") == logged(trainer, "eval_dev_other_loss")
    assert series(rows, "eval/dev/loss") == logged(trainer, "eval_dev_loss")
    run = of_kind(found, "run")[0]
    assert (run.project, run.display_name, run.notes) == ("recogniser", "toy", "first")
    assert list(run.tags) == ["a"]
    files = path.parent / "files"
    for name, content in (("sample", b"RIFF"), ("mel", b"\x89PNG"), ("text", b"<pre>a &lt;b&gt;")):
        (step, place), _ = series(rows, f"eval/{name}/path")
        assert step == 2 and (files / place).read_bytes().startswith(content)
    assert of_kind(found, "exit")[-1].exit_code == 0
    assert not of_kind(found, "artifact")
    assert not [row for row in trainer.state.log_history if "alert" in row]


def test_a_resume_continues_the_same_run(report_run: Any) -> None:
    first = report_run(report_to="wandb")
    report_run(report_to="wandb", resume=first.run_dir / "checkpoint-2")
    ids = {of_kind(found, "run")[0].run_id for found in runs(first.run_dir).values()}
    assert len(runs(first.run_dir)) == 2 and len(ids) == 1
    _, second = runs(first.run_dir).values()
    assert [step for step, _ in series(history(second), "train/loss")] == [3, 4]


def test_a_run_of_the_user_is_used_and_stays_open(report_run: Any, tmp_path: Path) -> None:
    mine = wandb.init(project="mine", dir=tmp_path, mode="offline")
    report_run(report_to="wandb")
    assert wandb.run is mine
    mine.log({"after": 1.0})
    mine.finish()
    ((_, found),) = runs(tmp_path).items()
    rows = history(found)
    assert len(series(rows, "train/loss")) == 4
    assert [row["after"] for row in rows if "after" in row] == [1.0]
    assert not list((tmp_path / "run").glob("wandb/*"))


def test_a_run_that_fails_is_finished_as_failed(report_run: Any, tmp_path: Path) -> None:
    class Fails(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, *_: Any, **context: Any) -> None:
            if state.global_step == 3:
                raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="the power went"):
        report_run(report_to="wandb", callbacks=[Fails()])
    assert wandb.run is None
    ((_, found),) = runs(tmp_path / "run").items()
    assert of_kind(found, "exit")[-1].exit_code == 1


@pytest.mark.parametrize(
    ("log_model", "aliases"),
    [
        ("checkpoint", [["checkpoint-2", "latest"], ["checkpoint-4", "latest"]]),
        ("end", [["final", "latest"]]),
    ],
)
def test_artifacts_on_request(report_run: Any, log_model: str, aliases: Any) -> None:
    trainer = report_run(report_to="wandb", wandb_log_model=log_model)
    ((_, found),) = runs(trainer.run_dir).items()
    artifacts = of_kind(found, "artifact")
    assert [sorted(artifact.aliases) for artifact in artifacts] == aliases
    contents = [entry.path for entry in artifacts[0].manifest.contents]
    name = "model_state.safetensors" if log_model == "checkpoint" else "training_recipe.json"
    assert name in contents
    assert (".complete" in contents) == (log_model == "checkpoint")
    if log_model == "end":
        assert (trainer.run_dir / "final-model").is_dir()


def test_an_incomplete_checkpoint_is_not_uploaded(tmp_path: Path) -> None:
    reporter = WandbReporter(WandbOptions(log_model="checkpoint", mode="offline"))
    args = TrainingArguments(output_dir=str(tmp_path))
    half = tmp_path / "checkpoint-9"
    half.mkdir()
    (half / "config.json").write_text("{}")
    for complete in (False, True):
        if complete:
            (half / ".complete").touch()
        reporter.on_checkpoint_saved(args, TrainerState(), TrainerControl(), checkpoint=half)
        assert (wandb.run is not None) == complete


def test_disabled(report_run: Any) -> None:
    trainer = report_run(report_to="wandb", wandb_mode="disabled")
    assert not list(trainer.run_dir.glob("wandb/offline*"))
    assert not [row for row in trainer.state.log_history if "alert" in row]


def test_options(report_run: Any) -> None:
    assert WandbOptions(log_model=True).log_model == "end"
    assert WandbOptions(log_model=False).log_model == WandbOptions().log_model == "false"
    assert WandbOptions(tags="one").tags == ["one"]
    with pytest.raises(ConfigurationError, match="'projct'.*'project'"):
        report_run(report_to="wandb", reporter_options={"wandb": {"projct": "x"}})
    with pytest.raises(ConfigurationError, match="offline"):
        report_run(report_to="wandb", wandb_mode="ofline")


def test_wandb_is_not_imported_before_the_first_event() -> None:
    code = """
import sys
from voicehub.trainer.arguments import TrainingArguments
from voicehub_wandb.reporter import make_reporter
make_reporter(TrainingArguments(report_to="wandb"))
assert "wandb" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

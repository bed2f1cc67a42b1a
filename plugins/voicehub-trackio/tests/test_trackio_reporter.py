"""What Trackio stores of a run on this machine."""

from __future__ import annotations

import importlib.util
import wave
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("trackio") is None:
    pytest.skip("pip install trackio", allow_module_level=True)

from voicehub.errors import ConfigurationError


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trackio's storage, in a directory of this test."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("TRACKIO_SPACE_ID", raising=False)
    monkeypatch.delenv("TRACKIO_SERVER_URL", raising=False)
    import trackio.utils
    from trackio import context_vars, sqlite_storage

    directory = tmp_path / "trackio"
    # Its modules keep the directory under this name, each for itself.
    for module in list(__import__("sys").modules.values()):
        if getattr(module, "__name__", "").startswith("trackio"):
            for name, place in (("TRACKIO_DIR", directory), ("MEDIA_DIR", directory / "media")):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, place)
    assert directory == trackio.utils.TRACKIO_DIR
    yield sqlite_storage.SQLiteStorage
    context_vars.current_run.set(None)


def rows(stored: Any, project: str, run: str) -> list[dict[str, Any]]:
    return sorted(stored.get_logs(project, run), key=lambda row: row["step"])


def series(found: list[dict[str, Any]], name: str) -> list[tuple[int, Any]]:
    return [(row["step"], row[name]) for row in found if name in row]


def logged(trainer: Any, key: str) -> list[tuple[int, float]]:
    return [(row["step"], row[key]) for row in trainer.state.log_history if key in row]


def test_scalars_media_and_settings(stored: Any, report_run: Any, tmp_path: Path) -> None:
    options = {"trackio": {"project": "recogniser", "group": "toys"}}
    trainer = report_run(report_to="trackio", reporter_options=options)
    (run,) = stored.get_run_records("recogniser")
    assert run["name"].startswith("toy-")
    found = rows(stored, "recogniser", run["name"])
    assert series(found, "train/loss") == logged(trainer, "loss")
    assert series(found, "eval/dev_other/loss") == logged(trainer, "eval_dev_other_loss")
    assert [step for step, _ in series(found, "eval/mel")] == [2, 4]
    assert series(found, "eval/text")[0][1]["_value"] == "    a <b> transcript"
    audio = series(found, "eval/sample")[0][1]
    with wave.open(str(tmp_path / "trackio" / "media" / audio["file_path"])) as file:
        assert file.getframerate() == 8000
        samples = memoryview(file.readframes(800)).cast("h")
    assert max(samples) == round(0.5 * 32767)  # as loud as it was, not scaled up
    assert not [row for row in trainer.state.log_history if "alert" in row]


def test_a_resume_continues_the_same_run(stored: Any, report_run: Any) -> None:
    first = report_run(report_to="trackio")
    report_run(report_to="trackio", resume=first.run_dir / "checkpoint-2")
    (run,) = stored.get_run_records("voicehub")
    steps = [step for step, _ in series(rows(stored, "voicehub", run["name"]), "train/loss")]
    assert steps == [1, 2, 3, 3, 4, 4]


def test_a_run_of_the_user_is_used_and_stays_open(stored: Any, report_run: Any) -> None:
    import trackio
    from trackio import context_vars

    mine = trackio.init(project="mine", name="own", embed=False)
    report_run(report_to="trackio")
    assert context_vars.current_run.get() is mine
    trackio.log({"after": 1.0}, step=9)
    trackio.finish()
    assert [run["name"] for run in stored.get_run_records("mine")] == ["own"]
    found = rows(stored, "mine", "own")
    assert len(series(found, "train/loss")) == 4 and series(found, "after") == [(9, 1.0)]


def test_a_space_is_private_by_default(report_run: Any) -> None:
    from voicehub_trackio.reporter import TrackioOptions

    assert TrackioOptions(space_id="me/space").private
    with pytest.raises(ConfigurationError, match="'projct'.*'project'"):
        report_run(report_to="trackio", reporter_options={"trackio": {"projct": "x"}})

"""What a configuration names outside itself, and whether it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from voicehub.errors import AssetError
from voicehub.models.assets import (
    MISSING,
    PRESENT,
    REMOTE,
    Asset,
    AssetState,
    locate_assets,
    named_assets,
    require_assets,
)
from voicehub.plugins import hooks
from voicehub.trainer.run_config import RunConfig


class Checkpoint(BaseModel):
    path: str | None = None
    revision: str | None = None
    local_files_only: bool = False


class Source(BaseModel):
    file: str

    def assets(self, setting: str) -> list[Asset]:
        return [Asset(f"{setting}.file", self.file, "file")]


class Model(BaseModel):
    encoder: Checkpoint = Checkpoint(path="org/encoder", revision="v1")
    decoder: Checkpoint = Checkpoint()
    path: str = "a path alone names no checkpoint"


class Config(RunConfig):
    model: Model = Model()
    data: dict[str, list[Source]] = Field(default_factory=dict)


def config(**more: Any) -> Config:
    return Config(family="toys", model_type="toy-asr", **more)


def test_checkpoints_sections_that_know_better_and_the_start() -> None:
    data = {"train": [{"file": "a"}, {"file": "b"}], "eval": [{"file": "a"}]}
    found = named_assets(config(data=data, init_from="runs/x"))
    assert [(asset.setting, asset.source, asset.kind) for asset in found] == [
        ("model.encoder.path", "org/encoder", "checkpoint"),
        ("data.train.0.file", "a", "file"),
        ("data.train.1.file", "b", "file"),
        ("data.eval.file", "a", "file"),
        ("init_from", "runs/x", "artifact"),
    ]
    assert found[0].revision == "v1"


def test_what_is_a_path_and_what_can_only_be_an_id(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert Asset("x", "org/name").local_path is None
    (tmp_path / "org/name").mkdir(parents=True)
    assert Asset("x", "org/name").local_path == Path("org/name")
    for path in ("./name", "/name", "a/b/c", "~/name"):
        assert Asset("x", path).local_path == Path(path).expanduser()
    assert Asset("x", "org/other", "file").local_path == Path("org/other")


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGIN_AUTOLOAD", "1")
    hooks.refresh()
    yield
    hooks.refresh()


def test_where_things_are_without_a_plugin(no_plugins: None, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    run = tmp_path / "run/final-model"
    run.mkdir(parents=True)
    document = {"voicehub_format": 1, "model_type": "t", "family": "f", "model": {}}
    (run / "config.json").write_text(json.dumps(document))
    assets = [
        Asset("data", str(tmp_path / "a.jsonl"), "file"),
        Asset("init_from", str(tmp_path / "run"), "artifact"),
        Asset("other", str(tmp_path), "artifact"),
        Asset("model.path", str(tmp_path / "none")),
        Asset("model.path", "org/name"),
    ]
    states = locate_assets(assets)
    assert [state.state for state in states] == [PRESENT, PRESENT, MISSING, MISSING, REMOTE]
    assert states[1].path == run
    with pytest.raises(AssetError) as caught:
        require_assets(states)
    assert str(caught.value).count("\n  - ") == 2
    with pytest.raises(AssetError, match="voicehub prefetch PRESET"):
        require_assets(states[-1:], remote_too=True)
    require_assets(states[:2], remote_too=True)
    require_assets(states[-1:])


def test_a_plugin_is_asked_about_checkpoints_alone(no_plugins: None, tmp_path: Path) -> None:
    asked: list[Asset] = []

    class Hub:
        @hooks.hookimpl
        def voicehub_locate_assets(self, assets: Any) -> list[AssetState]:
            asked.extend(assets)
            return [AssetState(asset, PRESENT, tmp_path, {"f": 3}, "c0ffee") for asset in assets]

    plugin = Hub()
    hooks.register(plugin)
    assets = [Asset("model.path", "org/name"), Asset("data", str(tmp_path / "none"), "file")]
    states = locate_assets(assets)
    hooks.unregister(plugin)
    assert asked == assets[:1]
    assert [state.state for state in states] == [PRESENT, MISSING]
    assert states[0].as_dict() == {
        "setting": "model.path",
        "source": "org/name",
        "kind": "checkpoint",
        "revision": None,
        "local_only": False,
        "part": None,
        "state": PRESENT,
        "path": str(tmp_path),
        "files": {"f": 3},
        "commit": "c0ffee",
        "detail": "",
    }

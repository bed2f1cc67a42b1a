"""``voicehub plan``: against torch's own record, and against a hub whose requests are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import pytest
import torch
from planned_memory import measured, planned, tiny_composition, trainers

from voicehub.cli.app import run
from voicehub.models.assets import REMOTE, Asset, AssetState
from voicehub_data.synthetic.tones import write_tone_corpus
from voicehub_hf.hub.loopback import Hub, serve_hub
from voicehub_hf.hub.sizes import voicehub_size_assets
from voicehub_hf.testing import make_tiny_ctc_checkpoint


@pytest.mark.parametrize("preset", ["asr-ctc/tiny", "xvector/tiny", "asr-ctc/wav2vec2-finetune"])
def test_the_peak_is_that_of_a_real_step(preset: str, tmp_path: Path) -> None:
    composed = tiny_composition(preset, tmp_path)
    make = trainers(composed)
    torch.manual_seed(0)
    found = planned(composed)
    assert found.peak == pytest.approx(measured(make), rel=0.1)
    module = make(_single).graph.adapter.module
    assert found.parameters.total == sum(p.numel() for p in module.parameters())
    assert found.parameters.trainable == sum(
        p.numel() for p in module.parameters() if p.requires_grad
    )


def _single(args: object) -> object:
    from voicehub.strategies.single import SingleProcessStrategy

    return SingleProcessStrategy(args)  # type: ignore[arg-type]


# -- the hub ---------------------------------------------------------------------------------

CHECKPOINT, DATA = "tester/wav2vec2", "tester/spoken"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that a command asks, with an empty cache and an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    with serve_hub() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    letters = ["<pad>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz"]
    return make_tiny_ctc_checkpoint(tmp_path_factory.mktemp("made"), "wav2vec2", letters)


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"data.train={write_tone_corpus(tmp_path_factory.mktemp('tones'))}"


def planned_json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["plan", "asr-ctc/wav2vec2-finetune", *words, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_no_weights_are_fetched(
    hub: Hub, checkpoint: Path, tones: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes come from the hub's list of files, shapes from config.json."""
    hub.offered[CHECKPOINT] = {p.name: p.read_bytes() for p in checkpoint.iterdir()}
    code, answer = planned_json(capsys, tones, f"model.path={CHECKPOINT}")
    assert code == 0, answer
    sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    (plan,) = answer["plan"]
    assert plan["disk"]["downloads"] == sum(sizes.values()) and plan["memory"]["weights"] > 0
    assert hub.downloads and not any(name.endswith(".safetensors") for name in hub.downloads)
    # Whatever else is asked for is a look-up, a configuration or a vocabulary.
    fetched = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert fetched <= {path.name for path in checkpoint.glob("*.json")} | MAY_BE_LOOKED_FOR


#: Small files that loaders of processors look for, whether a repository has them or not.
MAY_BE_LOOKED_FOR = {
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "processor_config.json",
    "preprocessor_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "video_preprocessor_config.json",
}  # fmt: skip


def look_up(**said: Any) -> dict[str, Any]:
    return {"id": CHECKPOINT, "modelId": CHECKPOINT, "private": False, "sha": "0" * 40, **said}


WEIGHTS = {"rfilename": "model.safetensors"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], "the hub does not tell"),
        (look_up(siblings=[{"size": 3}]), "the hub does not tell"),
        (look_up(siblings=None), "lists no weights in safetensors"),
        (look_up(siblings=[{"rfilename": "pytorch_model.bin", "size": 9}]), "lists no weights"),
        (look_up(siblings=[WEIGHTS]), "gives no size of model.safetensors (found None)"),
        (look_up(siblings=[{**WEIGHTS, "size": "big"}]), "model.safetensors (found 'big')"),
        (look_up(siblings=[{**WEIGHTS, "size": -4}]), "model.safetensors (found -4)"),
    ],
)
def test_metadata_that_are_missing_or_make_no_sense_are_reported(
    hub: Hub, tones: str, said: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.told[f"/api/models/{CHECKPOINT}"] = said
    code, answer = planned_json(capsys, tones, f"model.path={CHECKPOINT}")
    assert code == 1
    assert f"model.path = {CHECKPOINT}: " in answer["error"]["message"]
    assert told in answer["error"]["message"]
    assert not hub.downloads


def test_what_headers_say_of_weights_is_shown(hub: Hub) -> None:
    headers = {"parameters": {"F32": 94_395_552}, "total": 94_395_552}
    siblings = [{**WEIGHTS, "size": 377_607_901}]
    hub.told[f"/api/models/{CHECKPOINT}"] = look_up(siblings=siblings, safetensors=headers)
    (state,) = voicehub_size_assets([AssetState(Asset("model.path", CHECKPOINT), REMOTE)])
    assert state.detail == "94,395,552 numbers in F32" and state.size == 377_607_901


def test_a_hub_that_is_away_is_named(
    hub: Hub, tones: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.unavailable = True
    code = run(["plan", "asr-ctc/wav2vec2-finetune", "model.path=tester/away", tones])
    assert code == 1
    assert "model.path = tester/away: the hub does not tell" in capsys.readouterr().err


DATA_ON_HUB = (f"data.train={{path: {DATA}, kind: datasets, name: en}}", "data.eval=null")


@pytest.mark.parametrize(
    ("card", "size", "how"),
    [
        (
            {"dataset_info": [
                {"config_name": "de", "download_size": 1},
                {"config_name": "en", "download_size": 2_000_000_000},
            ]},
            2_000_000_000,
            "by its card",
        ),
        ({"dataset_info": {"config_name": "fr", "download_size": 5}}, 800_000_000, "all its files"),
        (None, 800_000_000, "all its files"),
    ],
)  # fmt: skip
def test_data_on_the_hub_are_sized_and_not_fetched(
    hub: Hub, checkpoint: Path, card: Any, size: int, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "README.md": 999,
        ".gitattributes": 9,
        "en/0.parquet": 3 * 10**8,
        "en/1.parquet": 5 * 10**8,
    }
    siblings = [{"rfilename": name, "size": size} for name, size in files.items()]
    hub.told[f"/api/datasets/{DATA}"] = {
        "id": DATA, "sha": "1" * 40, "siblings": siblings, "cardData": card,
    }  # fmt: skip
    code, answer = planned_json(capsys, f"model.path={checkpoint}", *DATA_ON_HUB)
    assert code == 1 and answer["plan"] == []
    assert answer["disk"] == {
        "downloads": 0,
        "data": round(2.05 * size),
        "total": round(2.05 * size),
    }
    (state,) = [state for state in answer["assets"] if state["kind"] == "dataset"]
    assert sum(state["files"].values()) == size and state["detail"].startswith(how)
    assert [path for path in hub.asked if "dataset" in path] == [f"/api/datasets/{DATA}"]
    run(["plan", "asr-ctc/wav2vec2-finetune", f"model.path={checkpoint}", *DATA_ON_HUB])
    assert "voicehub prefetch asr-ctc/wav2vec2-finetune" in capsys.readouterr().out


def test_a_data_set_without_sizes_is_reported(
    hub: Hub, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    siblings = [{"rfilename": "en/0.parquet"}]
    hub.told[f"/api/datasets/{DATA}"] = {"id": DATA, "sha": "1" * 40, "siblings": siblings}
    code, answer = planned_json(capsys, f"model.path={checkpoint}", *DATA_ON_HUB)
    assert code == 1
    assert f"{DATA}: the hub gives no size of en/0.parquet" in answer["error"]["message"]


def test_data_that_their_library_keeps_need_no_hub(
    hub: Hub, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A data set in the cache of ``datasets`` is planned with while the hub is away."""
    cache = tmp_path / "datasets" / "tester___spoken" / "en" / "0.0.0"
    rows = [
        {"audio": str(row["audio_filepath"]), "text": row["text"], "duration": row["duration"]}
        for row in rows_of(write_tone_corpus(tmp_path / "spoken"))
    ]
    builder = datasets.Dataset.from_list(rows)
    builder.save_to_disk(str(tmp_path / "saved"))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    folder = cache / "abc"
    folder.mkdir(parents=True)
    (folder / "spoken-train.arrow").write_bytes(arrow.read_bytes())
    info = builder.info
    split = datasets.SplitInfo("train", num_examples=len(rows), dataset_name="spoken")
    info.splits = datasets.SplitDict({"train": split}, dataset_name="spoken")
    info.builder_name, info.dataset_name, info.config_name = "parquet", "spoken", "en"
    info.version = datasets.Version("0.0.0")
    info.write_to_directory(str(folder))
    hub.unavailable = True
    code, answer = planned_json(capsys, f"model.path={checkpoint}", *DATA_ON_HUB)
    assert code == 0, answer
    (state,) = [state for state in answer["assets"] if state["kind"] == "dataset"]
    assert state["state"] == "present" and answer["plan"][0]["disk"]["data"] == 0
    assert not hub.asked


def rows_of(manifest: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    return [{**row, "audio_filepath": manifest.parent / row["audio_filepath"]} for row in rows]


# -- what people read ------------------------------------------------------------------------


def test_a_run_that_does_not_fit_ends_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("voicehub.planning.cards.CONTEXT_BYTES", 16 * 2**30 - 500_000)
    data = f"data.train={write_tone_corpus(tmp_path / 'train')}"
    assert run(["plan", "asr-ctc/tiny", data, "--card", "T4"]) == 1
    text = capsys.readouterr().out
    assert "T4 (16 GiB) does not hold it" in text and "To make it fit" in text
    assert not (tmp_path / "runs").exists()

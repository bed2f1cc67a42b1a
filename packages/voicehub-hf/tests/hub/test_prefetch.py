"""`voicehub prefetch` against a hub on loopback: what is fetched, verified, shared and reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from voicehub.errors import AssetError
from voicehub.models.assets import MISSING, PRESENT, REMOTE, Asset, locate_assets, require_assets
from voicehub_hf.hub.loopback import serve_hub
from voicehub_hf.hub.prefetch import choose_files, prefetch
from voicehub_hf.hub.verify import problems_of
from voicehub_hf.testing import make_tiny_ctc_checkpoint

NAME = "tester/wav2vec2"
LETTERS = ["<pad>", "<unk>", "|", *"abcd"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_ctc_checkpoint(tmp_path_factory.mktemp("tiny"), "wav2vec2", LETTERS)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache of this test."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def offered(hub: Any, checkpoint: Path, cache: Path) -> Any:
    """The hub, with the checkpoint and what else lies in such repositories."""
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    rest = {"pytorch_model.bin": b"pickle", "README.md": b"card", "onnx/model.onnx": b"x"}
    hub.offered[NAME] = {**files, **rest}
    return hub


def of(name: str = NAME, **more: Any) -> Asset:
    return Asset("model.path", name, **more)


def forget_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


# -- fetching --------------------------------------------------------------------------------


def test_what_training_reads_is_fetched_once_and_the_commit_named(
    offered: Any, checkpoint: Path, cache: Path
) -> None:
    (state,) = prefetch([of()])
    assert state.state == PRESENT
    assert state.commit == offered.head(NAME)
    assert state.detail == f"not pinned; model.revision={state.commit} would be"
    sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    assert state.files == sizes and state.size == sum(sizes.values())
    assert state.path is not None and state.path.is_relative_to(cache)
    (again,) = prefetch([of()])
    assert again == state
    assert set(offered.downloads) == set(sizes) and set(offered.downloads.values()) == {1}


def test_a_pinned_revision_is_taken_at_its_word(offered: Any) -> None:
    pinned = of(revision=offered.head(NAME))
    (state,) = prefetch([pinned])
    assert (state.state, state.commit, state.detail) == (PRESENT, pinned.revision, "")


def test_a_branch_that_moved_is_fetched_anew(offered: Any) -> None:
    (before,) = prefetch([of()])
    offered.offered[NAME]["vocab.json"] += b" "
    (after,) = prefetch([of()])
    assert after.commit == offered.head(NAME) != before.commit
    assert offered.downloads["vocab.json"] == 2 and offered.downloads["model.safetensors"] == 1


def test_offline_the_cached_files_do(offered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (state,) = prefetch([of()])
    forget_network(monkeypatch)
    assert prefetch([of()]) == [state]
    from voicehub_hf.loading import load_ctc

    model, _ = load_ctc(NAME)  # what loads models finds them in the same place
    assert model.config.vocab_size == len(LETTERS)


def test_a_hub_in_trouble_leaves_the_cached_files_and_says_so(offered: Any) -> None:
    (before,) = prefetch([of()])
    offered.unavailable = True
    (after,) = prefetch([of()])
    assert (after.state, after.commit) == (PRESENT, before.commit)
    assert "the hub does not answer" in after.detail and "as it was cached" in after.detail


def test_everything_that_is_missing_is_listed_at_once(offered: Any, tmp_path: Path) -> None:
    del offered.offered[NAME]["model.safetensors"]
    assets = [
        of(),
        of("tester/nothing"),
        of(revision="no-such-branch"),
        of(str(tmp_path / "nowhere")),
        Asset("data.train", str(tmp_path / "train.jsonl"), "file"),
    ]
    states = prefetch(assets)
    assert [state.state for state in states] == [MISSING] * 5
    with pytest.raises(AssetError, match="missing") as caught:
        require_assets(states)
    text = str(caught.value)
    assert all(asset.source in text for asset in assets)
    assert "no weights in safetensors" in text and "RevisionNotFound" in text
    assert "data.train" in text


def test_the_token_of_the_environment_is_in_no_message(offered: Any) -> None:
    states = prefetch([of("tester/nothing")])
    assert "LoopbackSecret" not in json.dumps([state.as_dict() for state in states])


def test_several_processes_fetch_each_file_once(offered: Any, cache: Path, tmp_path: Path) -> None:
    code = (
        "from voicehub.models.assets import Asset\n"
        "from voicehub_hf.hub.prefetch import prefetch\n"
        f"state, = prefetch([Asset('model.path', {NAME!r})])\n"
        "print(state.state, state.commit)\n"
    )
    environment = {
        **{k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"},
        "HF_HUB_CACHE": str(cache),
        "HF_ENDPOINT": offered.url,
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=600)[0].strip() for process in running}
    assert answers == {f"present {offered.head(NAME)}"}
    assert set(offered.downloads.values()) == {1}


# -- choosing and verifying ------------------------------------------------------------------


def test_one_set_of_weights_is_chosen() -> None:
    small = ["config.json", "vocab.json", "tokenizer.model"]
    rest = ["README.md", "flax_model.msgpack", "pytorch_model.bin", "fp16/model.safetensors"]
    assert choose_files([*small, *rest, "model.safetensors", "model.fp16.safetensors"]) == sorted(
        [*small, "model.safetensors"]
    )
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    sharded = [*small, "model.safetensors.index.json", *shards]
    assert choose_files([*sharded, *rest, "consolidated.safetensors"]) == sorted(sharded)
    assert choose_files([*small, "vocoder.safetensors"])[-1] == "vocoder.safetensors"


def test_damaged_and_incomplete_directories(checkpoint: Path, tmp_path: Path) -> None:
    assert problems_of(checkpoint) == []
    copy = tmp_path / "copy"
    copy.mkdir()
    assert problems_of(copy) == ["config.json is missing"]
    (copy / "config.json").write_text("{}")
    assert "no weights in safetensors" in problems_of(copy)[0]
    content = (checkpoint / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-7])
    assert problems_of(copy) == [
        f"model.safetensors has {len(content) - 7} bytes, {len(content)} were expected"
    ]
    (copy / "model.safetensors").write_bytes(content[:40])
    assert "model.safetensors is damaged" in problems_of(copy)[0]
    (copy / "model.safetensors").write_bytes(content)
    (copy / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-2.safetensors"}}'
    )
    assert problems_of(copy) == ["model-2.safetensors, which the index lists, is missing"]


def test_locating_fetches_nothing(offered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [state.state for state in locate_assets([of()])] == [REMOTE]
    assert [state.state for state in locate_assets([of(local_only=True)])] == [MISSING]
    assert not offered.downloads
    prefetch([of()])
    assert [state.state for state in locate_assets([of(), of(local_only=True)])] == [PRESENT] * 2
    forget_network(monkeypatch)
    assert [state.state for state in locate_assets([of("tester/other")])] == [MISSING]


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command on a preset of a family that only names a checkpoint."""
    pytest.importorskip("voicehub_asr_ctc")
    from voicehub.cli.app import run

    monkeypatch.chdir(tmp_path)

    def invoke(capfd: Any, *words: str) -> tuple[int, str]:
        code = run(["prefetch", "asr-ctc/wav2vec2-finetune", *words])
        captured = capfd.readouterr()
        return code, captured.out + captured.err

    return invoke


def test_the_command_reports_files_sizes_and_commit(
    preset: Any, offered: Any, capfd: pytest.CaptureFixture[str], checkpoint: Path
) -> None:
    code, text = preset(capfd, f"model.path={NAME}")
    assert code == 0, text
    assert "All of it is here." in text and offered.head(NAME)[:12] in text
    size = (checkpoint / "model.safetensors").stat().st_size
    assert f"model.safetensors  {size:,} bytes" in text
    code, text = preset(capfd, f"model.path={checkpoint}", "--json")
    answer = json.loads(text.splitlines()[-1])
    assert code == 0 and answer["assets"][0]["path"] == str(checkpoint)


def test_the_command_fails_with_all_that_is_missing(
    preset: Any, offered: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    code, text = preset(
        capfd, "model.path=tester/nothing", "data.train=[a.jsonl, b.jsonl]", "--json"
    )
    answer = json.loads(text.splitlines()[-1])
    assert code == 1 and answer["ok"] is False
    assert {(a["setting"], a["state"]) for a in answer["assets"]} == {
        ("model.path", "missing"),
        ("data.train.0", "missing"),
        ("data.train.1", "missing"),
    }


def test_stages_are_looked_through_too(
    preset: Any, offered: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "staged.yaml").write_text(
        "extends: asr-ctc/wav2vec2-finetune\n"
        f"model: {{path: {NAME}}}\n"
        "stages:\n  one: {}\n  two: {data: {train: later.jsonl}}\n"
    )
    from voicehub.cli.app import run

    code = run(["prefetch", "staged.yaml", "--json"])
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert code == 1
    found = [(a["setting"], a["source"], a["state"]) for a in answer["assets"]]
    assert found == [("model.path", NAME, "present"), ("data.train", "later.jsonl", "missing")]


def test_the_loopback_hub_refuses_what_it_does_not_offer() -> None:
    with serve_hub() as state:
        state.offered["a/b"] = {"config.json": b"{}"}
        assert len(state.head("a/b")) == 40
        assert state.downloads == {}

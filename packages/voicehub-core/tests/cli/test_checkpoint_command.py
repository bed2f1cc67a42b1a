"""`voicehub checkpoint show|verify|convert`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.checkpoints.reader import open_checkpoint

Run = Callable[..., Any]


@pytest.fixture
def run(cli: Run, work: Path) -> Path:
    assert cli("train", "toy/tiny", "data.train=train.jsonl").code == 0
    return work / "runs/toy"


def test_show_reads_the_newest_of_a_run_or_the_one_named(cli: Run, run: Path) -> None:
    answer = cli("checkpoint", "show", "runs/toy", "--json").last_json
    assert answer["manifest"]["global_step"] == 12
    assert answer["manifest"]["model_type"] == "toy-line"
    text = cli("checkpoint", "show", "runs/toy/checkpoint-4").stdout
    assert "step        4" in text and "model_state.safetensors" in text and "toy-line" in text


def test_verify_names_the_damaged_file(cli: Run, run: Path) -> None:
    assert cli("checkpoint", "verify", "runs/toy", "--all").code == 0
    file = run / "checkpoint-8/optimizer.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(bytes(content))
    assert cli("checkpoint", "verify", "runs/toy").code == 0  # the newest one is sound
    outcome = cli("checkpoint", "verify", "runs/toy", "--all", "--json")
    assert outcome.code == 1
    found = {Path(item["path"]).name: item for item in outcome.last_json["checkpoints"]}
    assert found["checkpoint-4"]["sound"] and not found["checkpoint-8"]["sound"]
    assert "optimizer.pt" in found["checkpoint-8"]["reason"]


def test_an_incomplete_checkpoint_is_not_sound(cli: Run, run: Path) -> None:
    (run / "checkpoint-12/.complete").unlink()
    outcome = cli("checkpoint", "verify", "runs/toy/checkpoint-12")
    assert outcome.code == 1
    assert ".complete" in outcome.stdout


def legacy(directory: Path, state: dict[str, Any], version: int | None = 3) -> Path:
    """A checkpoint as formats 1 to 3 wrote them."""
    directory.mkdir(parents=True)
    torch.save(state, directory / "model_state.pt")
    (directory / "trainer_state.json").write_text(json.dumps({"global_step": 40}))
    if version is not None:
        content = (directory / "model_state.pt").read_bytes()
        manifest = {
            "format_version": version,
            "global_step": 40,
            "model_type": "toy-line",
            "adapter_class": "old.Adapter",
            "required_files": ["model_state.pt"],
            "file_integrity": {
                "model_state.pt": {
                    "size": len(content),
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
            },
        }
        (directory / "checkpoint_manifest.json").write_text(json.dumps(manifest))
    return directory


def adapter_state(**components: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        "__voicehub_training_adapter__": True,
        "__voicehub_training_adapter_version__": 2,
        "topology": {},
        "components": components,
        "recipe_state": {"ema": {"w": torch.ones(2)}},
    }


def test_convert_gives_weights_that_load_and_do_not_resume(cli: Run, run: Path, work: Path) -> None:
    weights = {"line.weight": torch.full((1, 4), 3.0), "line.bias": torch.zeros(1)}
    source = legacy(work / "old/checkpoint-40", adapter_state(model=weights))
    outcome = cli("checkpoint", "convert", str(source), "--output", "new", "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.last_json["source_format"] == 3
    assert outcome.last_json["tensors"] == 2
    assert outcome.last_json["left_out"] == ["recipe_state"]
    converted = open_checkpoint(outcome.last_json["path"])
    assert converted.step == 40
    assert torch.equal(converted.tensors()["line.weight"], weights["line.weight"])
    refused = cli(
        "train", "toy/tiny", "data.train=train.jsonl", "training.output_dir=other",
        f"resume={converted.path}",
    )  # fmt: skip
    assert refused.code == 1
    assert "resum" in refused.stderr


def test_convert_of_several_roots_and_of_a_plain_state(cli: Run, work: Path) -> None:
    one, two = {"w": torch.ones(1)}, {"w": torch.zeros(1)}
    state = adapter_state(**{"model.decoder": one, "discriminator": two})
    source = legacy(work / "old/checkpoint-40", state)
    answer = cli("checkpoint", "convert", str(source), "-o", "new", "--json").last_json
    assert set(open_checkpoint(answer["path"]).tensors()) == {"model/decoder.w", "discriminator.w"}
    plain = legacy(work / "older/checkpoint-7", one, version=None)
    answer = cli("checkpoint", "convert", str(plain), "-o", "newer", "--json").last_json
    assert answer["source_format"] == 1 and answer["step"] == 7
    assert set(open_checkpoint(answer["path"]).tensors()) == {"w"}


class Trap:
    """Would write a file if it were unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, ("trap-was-sprung", "w"))


@pytest.mark.parametrize("kind", ["pickled code", "damaged", "missing", "current"])
def test_convert_refuses_what_it_must_not_read(cli: Run, work: Path, run: Path, kind: str) -> None:
    source = legacy(work / "old/checkpoint-40", {"w": torch.ones(1)}, version=None)
    file = source / "model_state.pt"
    if kind == "pickled code":
        torch.save({"w": Trap()}, file)
    elif kind == "damaged":
        file.write_bytes(file.read_bytes()[:100])
    elif kind == "missing":
        file.unlink()
    else:
        source = run / "checkpoint-12"
    outcome = cli("checkpoint", "convert", str(source), "-o", "new")
    assert outcome.code == 1
    assert "Traceback" not in outcome.stderr
    assert not (work / "new").exists()
    assert not (work / "trap-was-sprung").exists()


def test_convert_checks_the_digests_of_format_3(cli: Run, work: Path) -> None:
    source = legacy(work / "old/checkpoint-40", {"w": torch.ones(1)})
    torch.save({"w": torch.zeros(1)}, source / "model_state.pt")
    outcome = cli("checkpoint", "convert", str(source), "-o", "new")
    assert outcome.code == 1
    assert "model_state.pt" in outcome.stderr

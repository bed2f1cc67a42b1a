"""What torchrun starts again after a failure goes on by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_tasks import make, result

from voicehub.testing.training import equal

RUN: dict[str, Any] = {
    "recipe": "gan",
    "dropout": 0.2,
    "per_device_train_batch_size": 2,
    "max_steps": 6,
    "save_strategy": "steps",
    "save_steps": 2,
}


def damage(checkpoint: Path) -> None:
    path = checkpoint / "model_state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damaged, step", [((), 6), ((6,), 4), ((6, 4), 2)])
def test_a_restarted_run_takes_the_newest_sound_checkpoint(
    damaged: tuple[int, ...], step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make(directory=tmp_path, **RUN)
    whole.train()
    for number in damaged:
        damage(tmp_path / f"checkpoint-{number}")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = make(directory=tmp_path, **RUN)
    again.train()
    assert again._run is not None and again._run.restored_from == tmp_path / f"checkpoint-{step}"
    assert equal(result(again)["weights"], result(whole)["weights"])


def test_a_first_start_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(directory=tmp_path, **RUN).train()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    with pytest.raises(FileExistsError, match="of an earlier run"):
        make(directory=tmp_path, **RUN).train()


def test_nothing_sound_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(directory=tmp_path, **RUN).train()
    for number in (2, 4, 6):
        damage(tmp_path / f"checkpoint-{number}")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(FileNotFoundError, match="No sound checkpoint"):
        make(directory=tmp_path, **RUN).train()

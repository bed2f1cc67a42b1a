"""The script for GPUs checks what it says; here its checks run on the CPU's paths."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("voicehub_vits")

import gpu_losses


def test_sound_paths_pass_and_wrong_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_losses, "SHAPES", ((3, 1, 1), (4, 17, 90), (3, 20, 60)))
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    assert gpu_losses.numbers("cpu", "torch") == []
    sound = gpu_losses.maximum_path

    def late(scores: torch.Tensor, *sizes: torch.Tensor, **options: object) -> torch.Tensor:
        index = sound(scores, *sizes, **options)
        return index.roll(1, 1) if scores.dtype == torch.float16 else index

    monkeypatch.setattr(gpu_losses, "maximum_path", late)
    wrong = gpu_losses.numbers("cpu", "torch")
    assert wrong and all("float16" in line and "unlike float64" in line for line in wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_losses.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err

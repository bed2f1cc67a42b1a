"""The script for GPUs checks what it says; here its checks run on the CPU's paths."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("voicehub_asr_ctc")
pytest.importorskip("voicehub_flow")
pytest.importorskip("voicehub_vits")
pytest.importorskip("voicehub_xvector")

import gpu_cases
import gpu_checks
import gpu_losses


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cases, "ALIGNMENTS", ((3, 1, 1), (4, 17, 90), (3, 20, 60)))
    monkeypatch.setattr(
        gpu_cases, "CTC", ((3, 1, 5, 1), (5, 20, 9, 6), (8, 90, 12, 30), (1, 40, 7, 9))
    )
    monkeypatch.setattr(gpu_cases, "VELOCITIES", ((1, 1, 1), (5, 9, 7), (3, 20, 4)))
    monkeypatch.setattr(gpu_checks, "RUNS", 2)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)


@pytest.mark.parametrize("name", list(gpu_cases.CHECKS))
def test_sound_paths_pass(name: str) -> None:
    if name == "ctc":
        bad = gpu_cases.CTC[2]
        assert bad[3] < 81, "more labels announced than there are"
    assert gpu_cases.CHECKS[name].numbers("cpu") == []


def test_a_late_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = gpu_cases.maximum_path

    def late(scores: torch.Tensor, *sizes: torch.Tensor, **options: Any) -> torch.Tensor:
        index = sound(scores, *sizes, **options)
        return index.roll(1, 1) if scores.dtype == torch.float16 else index

    monkeypatch.setattr(gpu_cases, "maximum_path", late)
    wrong = gpu_cases.CHECKS["alignment"].numbers("cpu")
    assert wrong and all("float16" in line and "unlike float64" in line for line in wrong)


@pytest.mark.parametrize(("name", "step"), [("ctc", "ctc_step"), ("velocity", "velocity_step")])
def test_a_wrong_gradient_and_unequal_runs_are_found(
    name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, noise = getattr(gpu_cases, step), torch.Generator().manual_seed(0)

    def off(*values: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        value, gradient = sound(*values, **options)
        if values[0].dtype == torch.float32:
            gradient = gradient * (1.0 + 1e-3 * torch.rand((), generator=noise))
        return value, gradient

    monkeypatch.setattr(gpu_cases, step, off)
    wrong = " ".join(gpu_cases.CHECKS[name].numbers("cpu"))
    assert "torch.float32 items first, gradient: off by" in wrong and "runs are not equal" in wrong
    assert "bfloat16" not in wrong


def test_an_error_is_told_and_the_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> list[str]:
        raise RuntimeError("no such launch")

    checks = {
        "first": gpu_cases.Check(broken, dict),
        "second": gpu_cases.Check(lambda device: [], dict),
    }
    monkeypatch.setattr(gpu_losses, "CHECKS", checks)
    assert gpu_losses.main(["--cpu", "--json"]) == 1
    said = capsys.readouterr().out
    assert "first: RuntimeError: no such launch" in said and "second: every number" in said


def test_a_rival_that_does_not_run_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(work: Any) -> dict[str, float]:
        if work is None:
            raise RuntimeError("not here")
        return {"ms": 1.0, "peak_mb": 2.0}

    monkeypatch.setattr(gpu_losses, "measured", measured)
    speed, failed = gpu_losses.timed({"triton": dict, "cuDNN": None, "ours, small": None})
    assert set(speed) == {"triton"} and failed == ["ours, small: not here"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_losses.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    assert gpu_losses.main(["--cpu", "linear-cross-entropy"]) == 0

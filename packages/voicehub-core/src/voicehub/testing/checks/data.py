"""Lengths, rates and order of the data."""

from __future__ import annotations

import math
import struct
import wave
from pathlib import Path
from typing import Any

from torch import Tensor

from voicehub.adapters.context import TrainingContext
from voicehub.data.loader import build_loader
from voicehub.data.plan import FixedSizePlan
from voicehub.errors import VoiceHubError
from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import Probe
from voicehub.testing.training import equal

_WORKERS = (0, 1, 2)
_SECONDS = 1.0


def lengths(case: ConformanceCase, directory: Path) -> str:
    """The family's length formula gives, for every length, what the model really puts out."""
    probe = Probe(case, double=False)
    probe.adapter.eval_mode()
    shortest, longest = case.lengths
    seen = []
    for length in range(shortest, longest + 1):
        inputs, info, named = probe.batch([case.item(length, length)])
        (declared,) = case.output_lengths(probe.adapter, inputs).tolist()
        phase = probe.adapter.select_phase(named) if named else None
        phase = phase or probe.adapter.select_evaluation_phase()
        context = TrainingContext(phase, inputs, None, None, False, info)
        output = probe.adapter.execute_prediction_phase(context)
        logits = output.logits if output.logits is not None else output.predictions
        assert isinstance(logits, Tensor), "the prediction phase returns no logits or predictions"
        real = logits.shape[1]
        assert declared == real, (
            f"a sample of length {length} has {real} outputs; the formula says {declared}"
        )
        seen.append(real)
    return f"{len(seen)} lengths, {min(seen)} to {max(seen)} outputs"


def sample_rate(case: ConformanceCase, directory: Path) -> str:
    """A file of twice the model's rate is refused, or resampled: never taken as it is."""
    if case.sample_rate is None:
        return "the model takes no audio"
    right = _tone(directory / "right.wav", case.sample_rate)
    wrong = _tone(directory / "wrong.wav", 2 * case.sample_rate)
    expected = len(case.read_audio(right))
    assert expected > 0, f"read_audio() of {_SECONDS:g} s gives nothing"
    try:
        got = len(case.read_audio(wrong))
    except VoiceHubError as error:
        text = str(error)
        rates = (str(case.sample_rate), str(2 * case.sample_rate))
        assert all(rate in text for rate in rates), (
            f"the refusal of another rate must name both {' and '.join(rates)}: {text}"
        )
        return f"{2 * case.sample_rate} Hz is refused with both rates named"
    assert math.isclose(got, expected, rel_tol=0.02, abs_tol=2), (
        f"{_SECONDS:g} s at {case.sample_rate} Hz gives {expected} steps, at "
        f"{2 * case.sample_rate} Hz {got}: another rate passes as it is"
    )
    return f"{2 * case.sample_rate} Hz is resampled to {case.sample_rate} Hz"


def _tone(path: Path, rate: int) -> Path:
    samples = (
        round(8000 * math.sin(2 * math.pi * 220 * i / rate)) for i in range(int(rate * _SECONDS))
    )
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return path


def workers(case: ConformanceCase, directory: Path) -> str:
    """Two epochs read with no, one and two workers hold the same batches, bit for bit."""
    dataset = case.dataset(10, 10)
    assert len(dataset) >= 6, f"dataset(10, seed) holds {len(dataset)} samples"
    plan = FixedSizePlan(len(dataset), 3, seed=3)
    reads: list[Any] = []
    for count in _WORKERS:
        batches = [
            batch
            for epoch in (0, 1)
            for batch in build_loader(
                dataset, plan, epoch=epoch, collate_fn=case.collate, num_workers=count
            )
        ]
        if reads:
            pairs = zip(reads, batches, strict=True)
            apart = [number for number, pair in enumerate(pairs) if not equal(*pair)]
            assert not apart, f"batches {apart} differ between 0 and {count} workers"
        else:
            reads = batches
    return f"{len(reads)} batches with {', '.join(map(str, _WORKERS))} workers"

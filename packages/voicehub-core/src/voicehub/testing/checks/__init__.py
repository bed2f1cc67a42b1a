"""The checks: functions ``(case, directory) -> evidence`` that raise AssertionError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from voicehub.testing.case import ConformanceCase
from voicehub.testing.checks.accumulation import accumulation
from voicehub.testing.checks.data import lengths, sample_rate, workers
from voicehub.testing.checks.gradients import gradients, ownership, update
from voicehub.testing.checks.isolation import evaluation, frozen
from voicehub.testing.checks.learning import learning
from voicehub.testing.checks.padding import padding_garbage, padding_mates
from voicehub.testing.checks.processes import two_processes
from voicehub.testing.checks.saving import checkpoint, export
from voicehub.testing.checks.spec import spec

Check = Callable[[ConformanceCase, Path], str]

FUNCTIONS: dict[str, Check] = {
    function.__name__: function
    for function in (
        spec,
        gradients,
        ownership,
        update,
        frozen,
        evaluation,
        checkpoint,
        export,
        accumulation,
        two_processes,
        padding_mates,
        padding_garbage,
        lengths,
        sample_rate,
        workers,
        learning,
    )
}

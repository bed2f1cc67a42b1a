"""The CUDA path of CTC without a GPU, in a strict interpreter, against the definition."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed: no CUDA path to test")

from strict_interpreter import MissingBarrier, OutOfBounds, Race, StrictKernel, cause, weakened

from voicehub_asr_ctc.losses import _cpu, _triton, ops, reference

BLANK = 1
Batch = tuple[Tensor, Tensor, Tensor, Tensor]
#: Interpreting what is not finite is on purpose in some cases.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """What ``torch.empty`` returns is filled with what is no number."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def strict(**replaced: StrictKernel) -> Any:
    kernels = {name: StrictKernel(kernel) for name, kernel in vars(_triton.KERNELS).items()}
    return SimpleNamespace(**{**kernels, **replaced})


def run(batch: Batch, kernels: Any = None, upstream: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Losses float64, and the gradient of the losses times 1, 2, ..."""
    kernels = kernels or strict()
    losses, peaks, shares = _triton.forward(*batch, BLANK, kernels)
    factors = torch.arange(1, len(losses) + 1, dtype=torch.float64)
    return losses, _triton.backward(factors, *batch, peaks, shares, BLANK, kernels)


def case(sizes: list[tuple[int, int]], tokens: int, scale: float = 1.0, seed: int = 0) -> Batch:
    """Logits float64, frame lengths, labels with repeats, label lengths; padding wild."""
    torch.manual_seed(seed)
    frames, labels = (max(values) for values in zip(*sizes, strict=True))
    logits = torch.randn(len(sizes), max(1, frames), tokens, dtype=torch.float64) * scale
    target = torch.randint(0, tokens - 1, (len(sizes), labels))
    target += target >= BLANK
    for row, (_, length) in zip(target, sizes, strict=True):
        row[length:] = -999
    lengths = torch.tensor(sizes)
    return logits, lengths[:, 0], target, lengths[:, 1]


def expected(batch: Batch) -> tuple[Tensor, Tensor]:
    logits, frames, labels, counts = batch
    losses, gradient = [], torch.zeros(logits.shape, dtype=torch.float64)
    for item, (n, m) in enumerate(zip(frames.tolist(), counts.tolist(), strict=True)):
        rows = logits[item, :n].double().tolist()
        loss, table = reference.ctc(rows, labels[item, :m].tolist(), BLANK)
        losses.append(loss)
        if n:
            gradient[item, :n] = (item + 1) * torch.tensor(table, dtype=torch.float64)
    return torch.tensor(losses, dtype=torch.float64), gradient


SIZES = [(1, 0), (1, 1), (6, 3), (4, 4), (0, 0), (0, 1), (3, 4)]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize(
    ("dtype", "tokens", "scale"),
    [
        (torch.float64, 3, 1000.0),
        (torch.float32, 70, 1.0),
        (torch.bfloat16, 5, 3.0),
        (torch.float16, 5, 3.0),
    ],
)
def test_it_equals_its_definition(dtype: torch.dtype, tokens: int, scale: float) -> None:
    logits, *targets = case(SIZES, tokens, scale)
    batch = (logits.to(dtype), *targets)
    losses, gradient = run(batch)
    wanted, wanted_gradient = expected(batch)
    exact = dtype == torch.float64
    torch.testing.assert_close(losses, wanted, rtol=1e-12 if exact else 1e-6, atol=1e-6)
    assert gradient.dtype == dtype
    torch.testing.assert_close(
        gradient.double(), wanted_gradient, rtol=0, atol=len(SIZES) * TOLERANCES[dtype]
    )


@pytest.mark.parametrize("seed", range(2))
def test_it_equals_its_definition_for_random_shapes(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [(draw.randint(0, 5), draw.randint(0, 3)) for _ in range(3)]
    dtype, scale = draw.choice(list(TOLERANCES)), draw.choice([0.0, 1.0, 50.0])
    logits, *targets = case(sizes, draw.randint(3, 80), scale, seed)
    batch = (logits.to(dtype), *targets)
    losses, gradient = run(batch)
    wanted, wanted_gradient = expected(batch)
    torch.testing.assert_close(losses, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        gradient.double(), wanted_gradient, rtol=0, atol=len(sizes) * TOLERANCES[dtype]
    )


def test_many_labels_and_rows_longer_than_a_block() -> None:
    batch = case([(38, 34), (2, 1)], 1030)
    losses, gradient = run(batch)
    wanted, peaks, totals = _cpu_forward(batch)
    factors = torch.tensor([1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(losses, wanted, rtol=1e-12, atol=0)
    other = _cpu.backward(factors, *batch, peaks, totals, BLANK)
    torch.testing.assert_close(gradient, other, rtol=0, atol=1e-11)


def _cpu_forward(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    problem = _cpu.LIBRARY.unavailable()
    if problem is not None:
        pytest.skip(f"no compiled path: {problem}")
    return _cpu.forward(*batch, BLANK)


def test_paths_that_fall_behind_by_more_than_a_double_holds_are_kept() -> None:
    """The only alignment has likelihood 1e-5000 where another state has had 1."""
    logits = torch.zeros(1, 12, 4, dtype=torch.float64)
    logits[0, :, BLANK] = 1000.0
    labels = torch.tensor([[0, 2, 3, 0, 2, 3]])
    batch = (logits, torch.tensor([12]), labels, torch.tensor([6]))
    losses, gradient = run(batch)
    wanted, wanted_gradient = expected(batch)
    torch.testing.assert_close(losses, wanted, rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=0, atol=1e-10)
    assert losses.item() > 5000


def test_infinite_and_missing_logits_give_a_defined_value() -> None:
    logits, *targets = case([(6, 2)] * 4, 5)
    logits[0, :, [0, 2, 3, 4]] = -math.inf  # only blanks: no alignment
    logits[1, 2, 4] = -math.inf
    logits[2, 3, 1] = math.nan
    logits[3, 1, 0] = math.inf
    losses, gradient = run((logits, *targets))
    assert losses[0] == math.inf and losses[1].isfinite() and losses[2:].isnan().all()
    assert (gradient[0] == 0).all() and gradient[1].isfinite().all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", 5), ("labels", -1), ("labels", BLANK), ("frames", 5), ("frames", -1),
     ("counts", 3), ("counts", -2)],
)  # fmt: skip
def test_wrong_labels_and_lengths_touch_no_foreign_memory(name: str, value: int) -> None:
    logits, frames, labels, counts = case([(4, 2), (4, 2)], 5)
    clean, _, _ = _triton.forward(logits, frames, labels, counts, BLANK, strict())
    labels[1, 1] = value if name == "labels" else labels[1, 1]
    if name != "labels":
        (frames if name == "frames" else counts)[1] = value
    losses, gradient = run((logits, frames, labels, counts))
    assert losses[0] == clean[0] and losses[1] == math.inf
    assert (gradient[1] == 0).all() and gradient[0].abs().max() > 0


def test_any_strides_give_the_same_bits_and_runs_are_equal() -> None:
    logits, *targets = case([(4, 2), (3, 1)], 6)
    plain = run((logits.float(), *targets))
    for order in ((1, 0, 2), (2, 1, 0)):
        back = [order.index(axis) for axis in range(3)]
        turned = logits.float().permute(order).contiguous().permute(back)
        for one, other in zip(run((turned, *targets)), plain, strict=True):
            assert torch.equal(one, other)


def test_tokens_further_apart_than_32_bits_reach(tmp_path: Path) -> None:
    stride = 1 << 30  # of a file without contents: nothing is allocated
    values = torch.from_file(str(tmp_path / "v"), True, 3 * stride + 2, dtype=torch.float16)
    logits = values.as_strided((1, 2, 4), (1, 1, stride))
    targets = torch.tensor([2]), torch.tensor([[0]]), torch.tensor([1])
    losses, peaks, shares = _triton.forward(logits, *targets, 3, strict())
    assert losses.item() == pytest.approx(math.log(16 / 3))
    one = torch.ones(1, dtype=torch.float64)
    gradient = _triton.backward(one, logits, *targets, peaks, shares, 3, strict())
    wanted = torch.tensor([[1 / 4 - 2 / 3, 1 / 4, 1 / 4, 1 / 4 - 1 / 3]] * 2)
    torch.testing.assert_close(gradient[0].float(), wanted, rtol=1e-3, atol=1e-3)


def test_frames_lie_where_a_grid_has_room_and_the_device_is_that_of_the_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond its first dimension a grid holds 65,535; Triton launches on the current device."""
    grids, devices = [], []

    class Seen:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return lambda *arguments, **options: None

    seen = SimpleNamespace(**dict.fromkeys(vars(_triton.KERNELS), Seen()))
    logits, *targets = case([(5, 2), (3, 1)], 6)
    losses, peaks, shares = _triton.forward(logits, *targets, BLANK, seen)
    _triton.backward(losses, logits, *targets, peaks, shares, BLANK, seen)
    assert grids == [(5, 2), (2, 1), (2, 2), (5, 2), (5, 2)]
    monkeypatch.setattr(torch.cuda, "device", lambda on: devices.append(on) or nullcontext())
    monkeypatch.setattr(_triton, "forward", lambda *_: None)
    monkeypatch.setattr(_triton, "backward", lambda *_: None)
    ops._ctc_on_cuda(logits, *targets, BLANK, True)
    ops._ctc_backward_on_cuda(losses, logits, *targets, peaks, shares, BLANK)
    assert devices == [logits.device] * 2


def test_empty_batches_and_no_frames() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    empty = (torch.zeros(0, 3, 4), none, torch.zeros(0, 2, dtype=torch.int64), none)
    losses, gradient = run(empty)
    assert losses.shape == (0,) and gradient.shape == (0, 3, 4)
    lengths, labels = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)
    losses, gradient = run((torch.zeros(2, 0, 4), lengths, labels, torch.tensor([0, 1])))
    assert losses.tolist() == [0.0, math.inf] and gradient.shape == (2, 0, 4)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("statistics", "mask=lanes < count", "mask=lanes >= 0"),
        ("softmax", "mask=lanes < count", "mask=lanes >= 0"),
        ("softmax", "mask=lanes < tokens", "mask=lanes >= 0"),
        ("paths", "mask=own & more", "mask=own"),
        ("paths", "mask=own & (lanes > 0)", "mask=lanes >= 0"),
        ("paths", "(label >= tokens)", "(label >= 99)"),
        ("paths", "(count <= most_labels)", "(count <= 99)"),
        ("paths", "(frames <= most_frames)", "(frames <= 99)"),
        ("paths", "mask=lanes <= count", "mask=lanes >= 0"),
        ("occupancy", "own = lanes < count", "own = lanes < BLOCK"),
        ("occupancy", "mask=own & (label != following)", "mask=own"),
        ("occupancy", "own = lanes < tl.where(alive, count + 1, 0)", "own = lanes < BLOCK"),
    ],
)
def test_a_bound_that_is_taken_away_is_caught(
    kernel: str, old: str, new: str, tmp_path: Path
) -> None:
    logits, frames, labels, counts = case([(4, 2), (4, 2), (4, 2), (4, 2)], 5)
    labels[0] = 3  # twice the same
    labels[3, 1] = 5 if "tokens)" in old else labels[3, 1]
    counts[3] = 3 if "most_labels" in old else 2
    frames[3] = 5 if "most_frames" in old else 4
    source = getattr(_triton.KERNELS, kernel)
    kernels = strict(**{kernel: weakened(source, old, new, tmp_path)})
    with pytest.raises(Exception, match=r"load|store") as caught:
        run((logits, frames, labels, counts), kernels)
    assert isinstance(cause(caught.value), MissingBarrier | OutOfBounds | Race)


def test_the_tables_hold_what_the_operator_lets_through() -> None:
    assert _triton.MOST_LABELS == ops.MOST_TRITON_LABELS

"""Alignment equals brute force on small cases and its definition on others, on every path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from voicehub.errors import ConfigurationError, DataError
from voicehub.kernels import load_loss
from voicehub_vits.losses import dense_path, maximum_path
from voicehub_vits.losses.monotonic_alignment import _cpu, reference

PATHS = ["c", "torch"]


@pytest.fixture(params=PATHS)
def kernel(request: pytest.FixtureRequest) -> str:
    if request.param == "c" and _cpu.LIBRARY.unavailable():
        pytest.skip(f"no compiled path: {_cpu.LIBRARY.unavailable()}")
    return str(request.param)


def every_path(text: int, frames: int) -> Iterator[list[int]]:
    """All monotonic paths: the frames at which the position moves on."""
    for moves in itertools.combinations(range(1, frames), text - 1):
        yield [sum(move <= frame for move in moves) for frame in range(frames)]


def brute_force(scores: Tensor) -> list[int]:
    """The best of all paths; of equal ones the one that was furthest at the last difference."""
    text, frames = scores.shape
    rows = scores.tolist()
    sums = [
        (sum(rows[i][j] for j, i in enumerate(path)), path[::-1], path)
        for path in every_path(text, frames)
    ]
    return max(sums)[2]


def lengths(*pairs: tuple[int, int]) -> tuple[Tensor, Tensor]:
    table = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def full(batch: int, text: int, frames: int) -> tuple[Tensor, Tensor]:
    return lengths(*[(text, frames)] * batch)


@pytest.mark.parametrize("ties", [False, True])
def test_it_equals_brute_force_for_every_length(kernel: str, ties: bool) -> None:
    torch.manual_seed(0)
    pairs = [(text, frames) for text in range(1, 6) for frames in range(text, 9)] * 3
    scores = torch.full((len(pairs), 5, 8), math.nan, dtype=torch.float64)
    expected = []
    for item, (text, frames) in enumerate(pairs):
        values = torch.randn(text, frames, dtype=torch.float64)
        values = values.round() if ties else values
        scores[item, :text, :frames] = values
        expected.append(brute_force(values) + [-1] * (8 - frames))
    assert maximum_path(scores, *lengths(*pairs), kernel=kernel).tolist() == expected


@pytest.mark.parametrize("kind", ["normal", "equal", "steep", "holes"])
def test_it_equals_its_definition(kernel: str, kind: str) -> None:
    torch.manual_seed(1)
    pairs = [(1, 1), (1, 50), (17, 17), (16, 33), (23, 50), (2, 49), (30, 47)]
    scores = torch.randn(len(pairs), 30, 50, dtype=torch.float64)
    if kind == "equal":
        scores = torch.zeros_like(scores)
    if kind == "steep":
        scores = scores * 1e5 - 1e8
    if kind == "holes":
        for value in (math.nan, math.inf, -math.inf):
            scores = scores.masked_fill(torch.rand(scores.shape) < 0.2, value)
    found = maximum_path(scores, *lengths(*pairs), kernel=kernel)
    for row, values, (text, frames) in zip(found.tolist(), scores, pairs, strict=True):
        expected = reference.maximum_path(values[:text, :frames].tolist())
        assert row == expected + [-1] * (50 - frames)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_narrow_scores_lose_no_frame(kernel: str, dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(2)
    scores = (torch.randn(3, 60, 700) * scale / 30 - 5 * scale).to(dtype)
    exact = maximum_path(scores.double(), *full(3, 60, 700), kernel=kernel)
    assert torch.equal(maximum_path(scores, *full(3, 60, 700), kernel=kernel), exact)


def test_any_strides_give_the_same_path(kernel: str) -> None:
    torch.manual_seed(3)
    scores = torch.randn(4, 21, 45)
    sizes = lengths((21, 45), (3, 45), (20, 20), (1, 2))
    expected = maximum_path(scores, *sizes, kernel=kernel)
    wide = torch.randn(4, 42, 90)
    wide[:, ::2, ::2] = scores
    others = {
        "frames first": scores.transpose(1, 2).contiguous().transpose(1, 2),
        "batch last": scores.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        "every second": wide[:, ::2, ::2],
    }
    for name, values in others.items():
        assert torch.equal(maximum_path(values, *sizes, kernel=kernel), expected), name
    one = scores[:1].expand(4, -1, -1)
    same = maximum_path(one, *full(4, 21, 45), kernel=kernel)
    assert torch.equal(same, same[:1].expand(4, -1))


def test_it_is_equal_over_runs_and_threads(kernel: str) -> None:
    torch.manual_seed(4)
    scores = torch.randn(8, 40, 200)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 2, 1, 2):
            torch.set_num_threads(number)
            found.append(maximum_path(scores, *full(8, 40, 200), kernel=kernel))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    ("text", "frames", "said"),
    [
        (5, 4, "item 1 has 5 text positions and 4 frames; every text position needs a frame"),
        (0, 6, "expected 1 to 5 positions"),
        (-1, 6, "item 1 has -1 text"),
        (0, 0, "and 0 frames"),
        (3, -2, "-2 frames"),
        (6, 7, "at most 7 frames"),
        (3, 8, "at most 7 frames"),
    ],
)
def test_lengths_that_allow_no_path(kernel: str, text: int, frames: int, said: str) -> None:
    torch.manual_seed(5)
    scores = torch.randn(2, 5, 7)
    sizes = lengths((5, 7), (text, frames))
    with pytest.raises(DataError, match=said):
        maximum_path(scores, *sizes, kernel=kernel)
    flagged = maximum_path(scores, *sizes, check=False, kernel=kernel)
    assert flagged[1].tolist() == [-1] * 7
    assert flagged[0].tolist() == reference.maximum_path(scores[0].tolist())


def test_tensors_of_the_wrong_kind_are_refused() -> None:
    scores, (text, frames) = torch.zeros(2, 3, 4), full(2, 3, 4)
    for values in (scores.long(), scores[0]):
        with pytest.raises(DataError, match="scores must be floating"):
            maximum_path(values, text, frames)
    with pytest.raises(DataError, match="text_lengths must be int64"):
        maximum_path(scores, text.int(), frames)
    with pytest.raises(DataError, match=r"frame_lengths must be int64 \(2,\), got torch.int64"):
        maximum_path(scores, text, frames[:1])
    with pytest.raises(DataError, match="text_lengths is on meta"):
        maximum_path(scores, text.to("meta"), frames)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_tensors_hold_no_path(kernel: str, shape: tuple[int, int, int]) -> None:
    found = maximum_path(torch.zeros(shape), *full(shape[0], 1, 1), check=False, kernel=kernel)
    assert found.shape == (shape[0], shape[2])
    assert (found == -1).all() or shape == (2, 3, 0)


def test_the_dense_path_marks_each_frame_once() -> None:
    index = torch.tensor([[0, 0, 1, -1], [0, 1, 2, 2]])
    dense = dense_path(index, 3)
    assert dense.dtype == torch.float32
    expected = [
        [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]],
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]],
    ]
    assert dense.tolist() == expected
    assert dense_path(index, 3, torch.bool).dtype == torch.bool
    assert dense_path(torch.full((1, 2), -1), 0).shape == (1, 0, 2)


def test_no_gradient_passes() -> None:
    scores = torch.zeros(1, 2, 3, requires_grad=True)
    assert not maximum_path(scores, *full(1, 2, 3)).requires_grad


def test_the_path_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = load_loss("vits.monotonic_alignment")
    monkeypatch.setenv("VOICEHUB_KERNELS", "vits.monotonic_alignment=torch")
    assert loss.selected_kernel().path == "torch"
    monkeypatch.setattr(_cpu, "maximum_path", None)  # would fail if it were called
    assert loss(torch.zeros(1, 2, 3), *full(1, 2, 3)).tolist() == [[0, 1, 1]]
    with pytest.raises(ConfigurationError, match="triton.*does not run on cpu"):
        loss(torch.zeros(1, 2, 3), *full(1, 2, 3), kernel="triton")

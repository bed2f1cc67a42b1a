"""Monotonic alignment search as one operator: batched, with lengths, where the scores are."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import KernelChoice, KernelPath, Loss
from voicehub_vits.losses.monotonic_alignment import _cpu, _torch


@lru_cache(maxsize=1)
def _without_triton() -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed: pip install 'voicehub-vits[triton]'"
    return None


KERNELS = KernelChoice(
    "vits.monotonic_alignment",
    (
        KernelPath("c", ("cpu",), _cpu.LIBRARY.unavailable),
        KernelPath("triton", ("cuda",), _without_triton),
        KernelPath("torch"),
    ),
)


def maximum_path(
    scores: Tensor,
    text_lengths: Tensor,
    frame_lengths: Tensor,
    *,
    check: bool | None = None,
    kernel: str | None = None,
) -> Tensor:
    """Text position of every frame on the best monotonic path; no gradient passes.

    A path begins at the first text position in the first frame, ends at the last in the last, and
    from frame to frame stays or moves on by one; it maximises the sum of its scores (Kim et al.
    2020, Glow-TTS, algorithm 1). Where staying and moving have brought equal sums, it stayed.
    Scores of NaN, and sums of infinities of unlike sign, count as minus infinity.

    Args:
        scores: (batch, text, frames), any floating dtype and strides; sums are float64. Fastest
            where the text positions of a frame lie next to each other in memory.
        text_lengths: int64 (batch,), text positions of each item, on the scores' device.
        frame_lengths: int64 (batch,), frames of each item, no fewer than its text positions.
        check: raise on lengths that allow no path; None does so on the CPU, and elsewhere, where
            looking would wait for the device, leaves all -1 in the row of such an item.
        kernel: ``c``, ``triton`` or ``torch``; None chooses by device and ``VOICEHUB_KERNELS``.
            The Triton path leaves texts of more than 2,048 positions to the torch path.

    Returns:
        int64 (batch, frames): positions 0 to text_lengths - 1, never falling, without gaps; -1
        from frame_lengths on.

    Raises:
        DataError: shapes or dtypes do not fit; or, with ``check``, text longer than frames, a
            length below 1 or beyond the tensor: the message names the item.
    """
    _check_tensors(scores, text_lengths, frame_lengths)
    checked = scores.device.type == "cpu" if check is None else check
    found: Tensor = _maximum_path(
        scores.detach(), text_lengths, frame_lengths, checked, kernel or ""
    )
    return found


def dense_path(index: Tensor, text: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The path as a matrix of ones and zeros.

    Args:
        index: int64 (batch, frames), as :func:`maximum_path` returns it.
        text: text positions, T.
        dtype: of the result.

    Returns:
        (batch, text, frames): 1 where a frame has that position; a frame of -1 is all 0.
    """
    inside = (index >= 0).unsqueeze(1)
    path = torch.zeros((index.shape[0], text, index.shape[1]), dtype=dtype, device=index.device)
    if text == 0:
        return path
    return path.scatter_(1, index.clamp(min=0).unsqueeze(1), inside.to(dtype))


@torch.library.custom_op(
    "voicehub_vits::maximum_path",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor scores, Tensor text_lengths, Tensor frame_lengths, bool check, str kernel)"
    " -> Tensor",
)
def _maximum_path(scores, text_lengths, frame_lengths, check, kernel):  # type: ignore[no-untyped-def]
    if check:
        _check_lengths(scores, text_lengths, frame_lengths)
    path = KERNELS.select("cpu", kernel or None).path
    run = _cpu.maximum_path if path == "c" else _torch.maximum_path
    return run(scores, text_lengths, frame_lengths)


@_maximum_path.register_kernel("cuda")
def _on_cuda(scores, text_lengths, frame_lengths, check, kernel):  # type: ignore[no-untyped-def]
    if check:
        _check_lengths(scores, text_lengths, frame_lengths)
    if KERNELS.select("cuda", kernel or None).path == "triton":
        from voicehub_vits.losses.monotonic_alignment import _triton

        if scores.shape[1] <= _triton.MOST_TEXT:
            with torch.cuda.device(scores.device):  # Triton launches on the current one
                return _triton.maximum_path(scores, text_lengths, frame_lengths)
    return _torch.maximum_path(scores, text_lengths, frame_lengths)


@_maximum_path.register_fake
def _fake(scores, text_lengths, frame_lengths, check, kernel):  # type: ignore[no-untyped-def]
    return scores.new_empty((scores.shape[0], scores.shape[2]), dtype=torch.int64)


def _check_tensors(scores: Tensor, text_lengths: Tensor, frame_lengths: Tensor) -> None:
    if scores.dim() != 3 or not scores.is_floating_point():
        raise DataError(
            "maximum_path: scores must be floating (batch, text, frames), got "
            f"{scores.dtype} {tuple(scores.shape)}."
        )
    for name, lengths in (("text_lengths", text_lengths), ("frame_lengths", frame_lengths)):
        if lengths.shape != scores.shape[:1] or lengths.dtype != torch.int64:
            raise DataError(
                f"maximum_path: {name} must be int64 ({scores.shape[0]},), got "
                f"{lengths.dtype} {tuple(lengths.shape)}."
            )
        if lengths.device != scores.device:
            raise DataError(
                f"maximum_path: {name} is on {lengths.device}, the scores on {scores.device}."
            )


def _check_lengths(scores: Tensor, text_lengths: Tensor, frame_lengths: Tensor) -> None:
    sound = _torch.sound_lengths(scores, text_lengths, frame_lengths)
    if bool(sound.all()):
        return
    item = int((~sound).nonzero()[0])
    text, frames = int(text_lengths[item]), int(frame_lengths[item])
    _, most_text, most_frames = scores.shape
    if text > frames:
        why = "every text position needs a frame of its own: shorten the text or drop the row"
    else:
        why = f"expected 1 to {most_text} positions and at most {most_frames} frames"
    raise DataError(
        f"maximum_path: item {item} has {text} text positions and {frames} frames; {why}."
    )


LOSS = Loss("vits.monotonic_alignment", {"maximum_path": maximum_path}, KERNELS)

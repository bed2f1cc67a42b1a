"""What ``gpu_losses.py`` checks and times, loss by loss."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpu_checks import (
    DTYPES,
    Check,
    Found,
    Work,
    beyond,
    tolerance,
    unequal,
    unlike_compiled,
)
from gpu_torch_cases import TORCH_CHECKS
from torch import Tensor
from torch.nn import functional

from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood
from voicehub_flow.losses import masked_velocity_error
from voicehub_vits.losses import maximum_path

# -- alignment -------------------------------------------------------------------------------

ALIGNMENTS = ((3, 1, 1), (4, 17, 90), (8, 160, 640), (2, 700, 1500), (2, 2048, 4096))


def alignment_batch(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, text lengths and frame lengths; the last item has as many frames as positions."""
    torch.manual_seed(sum(shape))
    count, text, frames = shape
    scores = (torch.randn(shape) * 30.0 - 150.0).to(device, dtype)
    text_lengths = torch.linspace(max(1, text // 2), text, count).long()
    frame_lengths = torch.linspace(max(text, frames * 0.6), frames, count).long()
    frame_lengths[-1] = text_lengths[-1]
    return scores, text_lengths.to(device), frame_lengths.to(device)


def alignment_numbers(device: str) -> list[str]:
    wrong: list[str] = []
    for shape in ALIGNMENTS:
        for dtype in DTYPES:
            scores, *sizes = alignment_batch(shape, dtype, device)
            exact = maximum_path(
                scores.double().cpu(), *(values.cpu() for values in sizes), kernel="torch"
            )
            turned = scores.transpose(1, 2).contiguous().transpose(1, 2)
            for layout, values in (("frames last", scores), ("frames first", turned)):
                unlike = int((maximum_path(values, *sizes).cpu() != exact).sum())
                if unlike:
                    wrong.append(f"{shape} {dtype} {layout}: {unlike} frames unlike float64")
    scores, *sizes = alignment_batch(ALIGNMENTS[2], torch.float32, device)
    first = maximum_path(scores, *sizes)
    wrong += unequal(lambda: (maximum_path(scores, *sizes), first))
    bad = sizes[0].clone()
    bad[0] = sizes[1][0] + 1
    flagged = maximum_path(scores, bad, sizes[1], check=False)
    if not (flagged[0] == -1).all() or not torch.equal(flagged[1:], first[1:]):
        wrong.append("text longer than the frames is not flagged, or disturbs others")
    return wrong + unlike_compiled(maximum_path, scores, *sizes)


def alignment_works() -> dict[str, Work]:
    scores, *sizes = alignment_batch((16, 160, 640), torch.float32, "cuda")

    def through_the_cpu() -> Tensor:
        return maximum_path(scores.cpu(), *(values.cpu() for values in sizes)).cuda()

    return {
        "triton": lambda: maximum_path(scores, *sizes, kernel="triton"),
        "torch operators": lambda: maximum_path(scores, *sizes, kernel="torch"),
        "copy to the CPU and back": through_the_cpu,
    }


# -- ctc -------------------------------------------------------------------------------------

#: Items, frames, tokens, labels.
CTC = ((3, 1, 5, 1), (5, 60, 40, 20), (8, 400, 32, 80), (2, 500, 5000, 120), (1, 3000, 32, 300),
       (1, 2100, 64, 1000))  # fmt: skip


def ctc_batch(
    shape: tuple[int, int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, ...]:
    """Logits, frame lengths, labels, label lengths; with repeats, all but the last item shorter."""
    torch.manual_seed(sum(shape))
    items, frames, tokens, most = shape
    logits = torch.randn(items, frames, tokens).to(device, dtype)
    lengths = torch.linspace(max(1, frames * 0.6), frames, items).long()
    counts = torch.linspace(min(1, most), most, items).long()
    labels = torch.randint(1, tokens, (items, most))
    return logits, lengths.to(device), labels.to(device), counts.to(device)


def ctc_step(logits: Tensor, *targets: Tensor, kernel: str | None = None) -> Found:
    """Losses, and the gradient of those that are finite."""
    logits = logits.detach().requires_grad_()
    losses = ctc_negative_log_likelihood(logits, *targets, blank=0, check=False, kernel=kernel)
    kept = torch.where(losses.isfinite(), losses, 0.0)
    return losses.detach(), torch.autograd.grad(kept.sum(), logits)[0]


def ctc_numbers(device: str) -> list[str]:
    wrong: list[str] = []
    for shape in CTC:
        for dtype in DTYPES:
            logits, *targets = ctc_batch(shape, dtype, device)
            exact = ctc_step(logits.double().cpu(), *(values.cpu() for values in targets))
            turned = logits.transpose(0, 1).contiguous().transpose(0, 1)
            for layout, values in (("items first", logits), ("frames first", turned)):
                found = ctc_step(values, *targets)
                what = f"{shape} {dtype} {layout}"
                wrong += beyond(f"{what}, loss", found[0], exact[0], 1e-5)
                wrong += beyond(f"{what}, gradient", found[1], exact[1], tolerance(dtype))
    logits, *targets = ctc_batch(CTC[2], torch.float32, device)
    first = ctc_step(logits, *targets)
    wrong += unequal(lambda: ctc_step(logits, *targets))
    lengths, labels, counts = (values.clone() for values in targets)
    labels[0, 0], lengths[1], counts[2], labels[3, 0] = 999, -1, 81, 0
    losses, gradient = ctc_step(logits, lengths, labels, counts)
    if not (losses[:4] == torch.inf).all() or gradient[:4].any():
        wrong.append("bad labels and lengths are not flagged")
    if not torch.equal(losses[4:], first[0][4:]) or not torch.equal(gradient[4:], first[1][4:]):
        wrong.append("bad labels disturb others")
    wrong += ctc_extremes(device)
    return wrong + unlike_compiled(
        lambda values: ctc_negative_log_likelihood(values, *targets, blank=0, check=False), logits
    )


def ctc_extremes(device: str) -> list[str]:
    """Items without frames or labels, and logits so far apart that sums of paths underflow."""
    torch.manual_seed(0)
    shape = (6, 30, 9)
    lengths, counts = torch.tensor([0, 0, 1, 30, 30, 25]), torch.tensor([0, 1, 1, 0, 14, 12])
    labels = torch.randint(1, shape[2], (6, 14))
    wrong: list[str] = []
    for scale in (0.0, 30.0, 1000.0):
        logits = torch.randn(shape, dtype=torch.float64) * scale
        exact = ctc_step(logits, lengths, labels, counts)
        for dtype, most in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
            own = logits.to(device, dtype)
            found = ctc_step(own, *(values.to(device) for values in (lengths, labels, counts)))
            what = f"logits times {scale:g}, {dtype}"
            wrong += beyond(f"{what}, loss", found[0], exact[0], 1e-5)
            if dtype == torch.float64 or scale < 100.0:  # rounded logits are other logits
                wrong += beyond(f"{what}, gradient", found[1], exact[1], most)
    return wrong


def ctc_works() -> dict[str, Work]:
    works: dict[str, Work] = {}
    for shape in ((16, 400, 32, 80), (8, 1000, 5000, 120), (32, 1500, 512, 200)):
        items, frames, tokens, most = shape
        logits, _, labels, _ = ctc_batch(shape, torch.float32, "cuda")
        full = torch.full((items,), frames, device="cuda")
        counts = torch.full((items,), most, device="cuda")
        targets = (full, labels, counts)
        size = f"{items} x {frames} x {tokens}"
        for name, kernel in (("triton", "triton"), ("torch", "native")):
            works[f"{name}, {size}"] = lambda logits=logits, targets=targets, kernel=kernel: (  # type: ignore[misc]
                ctc_step(logits, *targets, kernel=kernel)
            )
        works[f"cuDNN, {size}"] = lambda logits=logits, labels=labels: _cudnn(logits, labels)  # type: ignore[misc]
    return works


def _cudnn(logits: Tensor, labels: Tensor) -> Tensor:
    """What torch gives to cuDNN: labels and lengths int32 on the CPU, in one row."""
    logits = logits.detach().requires_grad_()
    items, frames, _ = logits.shape
    sizes = torch.full((items,), frames, dtype=torch.int32)
    counts = torch.full((items,), labels.shape[1], dtype=torch.int32)
    row = labels.flatten().int().cpu()
    logs = logits.log_softmax(-1).transpose(0, 1)
    loss = functional.ctc_loss(logs, row, sizes, counts, blank=0, reduction="sum")
    return torch.autograd.grad(loss, logits)[0]


# -- velocity --------------------------------------------------------------------------------

VELOCITIES = ((1, 1, 1), (5, 33, 7), (4, 700, 100), (2, 900, 513))


def velocity_batch(
    shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> tuple[Tensor, ...]:
    """Prediction in the dtype, noise and data in it or float32, mask; NaN where it is not set."""
    torch.manual_seed(sum(shape))
    lengths = torch.linspace(shape[1] * 0.5, shape[1], shape[0]).ceil()
    mask = torch.arange(shape[1]) < lengths[:, None]
    tensors = [torch.randn(shape).masked_fill(~mask[..., None], torch.nan) for _ in range(3)]
    prediction, noise, data = (values.to(device) for values in tensors)
    return prediction.to(dtype), noise, data.to(dtype), mask.to(device)


def velocity_step(*values: Tensor, kernel: str | None = None) -> Found:
    prediction = values[0].detach().requires_grad_()
    errors = masked_velocity_error(prediction, *values[1:], min_sigma=1e-3, kernel=kernel)
    return errors.detach(), torch.autograd.grad(errors.sum(), prediction)[0]


def velocity_numbers(device: str) -> list[str]:
    wrong: list[str] = []
    for shape in VELOCITIES:
        for dtype in DTYPES:
            values = velocity_batch(shape, dtype, device)
            wide = [v.cpu() if v.dtype == torch.bool else v.double().cpu() for v in values]
            exact = velocity_step(*wide, kernel="torch")
            turned = [v.transpose(0, 1).contiguous().transpose(0, 1) for v in values]
            for layout, tensors in (("items first", values), ("frames first", turned)):
                found = velocity_step(*tensors)
                what = f"{shape} {dtype} {layout}"
                wrong += beyond(f"{what}, error", found[0], exact[0], 1e-5)
                wrong += beyond(f"{what}, gradient", found[1], exact[1], tolerance(dtype))
    values = velocity_batch(VELOCITIES[2], torch.float32, device)
    wrong += unequal(lambda: velocity_step(*values))
    return wrong + unlike_compiled(masked_velocity_error, *values)


def velocity_works() -> dict[str, Work]:
    works: dict[str, Work] = {}
    for shape in ((16, 800, 100), (8, 4000, 512)):
        for dtype in (torch.float32, torch.bfloat16):
            values = tuple(v.nan_to_num(0.0) for v in velocity_batch(shape, dtype, "cuda"))

            def eager(values: tuple[Tensor, ...] = values) -> Tensor:
                prediction, noise, data, mask = values
                prediction = prediction.detach().requires_grad_()
                squares = (prediction.float() - (data - noise)) ** 2
                loss = (squares * mask[..., None]).sum()
                return torch.autograd.grad(loss, prediction)[0]

            size = f"{' x '.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            works[f"triton, {size}"] = lambda values=values: velocity_step(  # type: ignore[misc]
                *values, kernel="triton"
            )
            works[f"three passes, {size}"] = eager
    return works


CHECKS: Mapping[str, Check] = {
    "alignment": Check(alignment_numbers, alignment_works),
    "ctc": Check(ctc_numbers, ctc_works),
    "velocity": Check(velocity_numbers, velocity_works),
    **TORCH_CHECKS,
}

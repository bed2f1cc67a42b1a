"""What ``gpu_losses.py`` checks and times, loss by loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from voicehub.losses.linear_cross_entropy import IGNORED, linear_cross_entropy
from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood
from voicehub_flow.losses import masked_velocity_error
from voicehub_vits.losses import maximum_path
from voicehub_xvector.losses.aam_softmax import aam_softmax

RUNS = 20
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

Work = Callable[[], object]
Found = tuple[Tensor, Tensor]


class Check(NamedTuple):
    """One loss.

    Attributes:
        numbers: what is wrong on a device, one line each.
        works: what to time on CUDA, by name; ours first.
    """

    numbers: Callable[[str], list[str]]
    works: Callable[[], dict[str, Work]]


def apart(found: Tensor, exact: Tensor) -> float:
    """Greatest difference over the largest value; infinities must be the same ones."""
    found, exact = found.detach().double().cpu(), exact.detach().double().cpu()
    if not torch.equal(found.isfinite(), exact.isfinite()):
        return float("inf")
    sound = exact.isfinite()
    scale = exact[sound].abs().max() if sound.any() else torch.tensor(1.0)
    difference = (found - exact)[sound].abs().max() if sound.any() else torch.tensor(0.0)
    return float(difference / scale.clamp(min=1e-30))


def tolerance(dtype: torch.dtype) -> float:
    """Of a gradient in a dtype, as a share of its largest value."""
    return {torch.float64: 1e-9, torch.float32: 2e-5}.get(dtype, torch.finfo(dtype).eps * 2)


def beyond(what: str, found: Tensor, exact: Tensor, most: float) -> list[str]:
    """A line where a tensor is further from the exact one than it may be."""
    error = apart(found, exact)
    return [] if error <= most else [f"{what}: off by {error:.1e}, over {most:.0e}"]


def unequal(run: Callable[[], Found]) -> list[str]:
    """A line where runs differ in a bit."""
    first = run()
    for _ in range(RUNS):
        if not all(torch.equal(*pair) for pair in zip(run(), first, strict=True)):
            return [f"{RUNS} runs are not equal"]
    return []


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
    compiled = torch.compile(maximum_path, fullgraph=True)
    if not torch.equal(compiled(scores, *sizes), first):
        wrong.append("compiled, the path is another")
    return wrong


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
    compiled = torch.compile(
        lambda values: ctc_negative_log_likelihood(values, *targets, blank=0, check=False),
        fullgraph=True,
    )
    if not torch.equal(compiled(logits), first[0]):
        wrong.append("compiled, the loss is another")
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
    compiled = torch.compile(masked_velocity_error, fullgraph=True)
    if not torch.equal(compiled(*values, min_sigma=1e-3), velocity_step(*values)[0]):
        wrong.append("compiled, the error is another")
    return wrong


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


# -- in torch operators -------------------------------------------------------------------------


def linear_batch(rows: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, heads, labels of which half are masked."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(rows, 512), torch.randn(8, 1024, 512) / 512**0.5
    labels = torch.randint(0, 1024, (rows, 8))
    labels[torch.rand(rows, 8) < 0.5] = IGNORED
    return hidden.to(device), weight.to(device), labels.to(device)


def linear_step(hidden: Tensor, weight: Tensor, labels: Tensor) -> Found:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    found = linear_cross_entropy(hidden, weight, labels)
    gradients = torch.autograd.grad(found.total, (hidden, weight))
    return found.total.detach(), torch.cat([gradients[0].flatten(), gradients[1].flatten()])


def linear_numbers(device: str) -> list[str]:
    hidden, weight, labels = linear_batch(256, device)
    found = linear_step(hidden, weight, labels)
    exact = linear_step(hidden.double().cpu(), weight.double().cpu(), labels.cpu())
    wrong = beyond("loss", found[0], exact[0], 1e-5)
    wrong += beyond("gradients", found[1], exact[1], 1e-4)
    return wrong + unequal(lambda: linear_step(hidden, weight, labels))


def linear_works() -> dict[str, Work]:
    hidden, weight, labels = linear_batch(4096, "cuda")

    def materialised() -> Tensor:
        own, heads = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
        logits = functional.linear(own, heads.flatten(0, 1)).view(-1, heads.shape[1])
        loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)
        return torch.autograd.grad(loss, (own, heads))[0]

    return {"ours": lambda: linear_step(hidden, weight, labels), "all logits": materialised}


def aam_batch(classes: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    weight, labels = torch.randn(classes, 192), torch.randint(0, classes, (64,))
    embeddings = torch.randn(64, 192) + 0.5 * weight[labels]
    return embeddings.to(device), weight.to(device), labels.to(device)


def aam_step(embeddings: Tensor, weight: Tensor, labels: Tensor) -> Found:
    leaves = embeddings.detach().requires_grad_(), weight.detach().requires_grad_()
    losses = aam_softmax(*leaves, labels, scale=30.0, margin=0.2)
    gradients = torch.autograd.grad(losses.sum(), leaves)
    return losses.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def aam_numbers(device: str) -> list[str]:
    embeddings, weight, labels = aam_batch(3000, device)
    found = aam_step(embeddings, weight, labels)
    exact = aam_step(embeddings.double().cpu(), weight.double().cpu(), labels.cpu())
    wrong = beyond("loss", found[0], exact[0], 1e-5) + beyond("gradients", found[1], exact[1], 1e-4)
    return wrong + unequal(lambda: aam_step(embeddings, weight, labels))


def aam_works() -> dict[str, Work]:
    embeddings, weight, labels = aam_batch(100_000, "cuda")

    def target_column() -> Tensor:
        leaves = embeddings.detach().requires_grad_(), weight.detach().requires_grad_()
        cosine = functional.linear(*(functional.normalize(leaf) for leaf in leaves))
        own = cosine.gather(1, labels[:, None])
        hard = torch.cos(torch.acos(own.clamp(-1 + 1e-7, 1 - 1e-7)) + 0.2)
        loss = functional.cross_entropy(30.0 * cosine.scatter(1, labels[:, None], hard), labels)
        return torch.autograd.grad(loss, leaves)[0]

    return {
        "ours": lambda: aam_step(embeddings, weight, labels),
        "all logits, margin on the target": target_column,
    }


CHECKS: Mapping[str, Check] = {
    "alignment": Check(alignment_numbers, alignment_works),
    "ctc": Check(ctc_numbers, ctc_works),
    "velocity": Check(velocity_numbers, velocity_works),
    "linear-cross-entropy": Check(linear_numbers, linear_works),
    "aam-softmax": Check(aam_numbers, aam_works),
}

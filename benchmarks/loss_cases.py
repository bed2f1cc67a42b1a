"""The cases of ``losses.py``: each loss of ours beside the best public implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Work = Callable[[], object]


@dataclass
class Case:
    """One measurement.

    Attributes:
        title: what is measured, with its sizes.
        rival: name of the public implementation in ``works``.
        works: what to time, by name; without arguments.
        facts: figures that are no times, such as differing frames.
        weighed: whether peak memory is measured too.
        seconds: median of each work.
        megabytes: peak of each work above what was allocated before.
    """

    title: str
    rival: str
    works: Mapping[str, Work]
    facts: dict[str, float] = field(default_factory=dict)
    weighed: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)

    def speed(self, name: str) -> float:
        """Times faster than the rival."""
        return self.seconds[self.rival] / self.seconds[name]


def alignment(batch: int = 16, text: int = 160, frames: int = 640) -> Case:
    """Alignment search on scores as a model early in its training has them."""
    from monotonic_alignment_search import maximum_path as rival

    from voicehub_vits.losses import dense_path, maximum_path

    torch.manual_seed(0)
    scores = torch.randn(batch, text, frames) * 30.0 - 150.0
    frame_lengths = torch.linspace(frames * 0.6, frames, batch).long()
    text_lengths = (frame_lengths * text) // frames
    mask = torch.zeros(batch, text, frames)
    for item, (n, m) in enumerate(zip(text_lengths, frame_lengths, strict=True)):
        mask[item, :n, :m] = 1.0
    sizes = (text_lengths, frame_lengths)
    turned = scores.transpose(1, 2).contiguous().transpose(1, 2)
    works: dict[str, Work] = {
        "Cython package": lambda: rival(scores, mask),
        "ours, index": lambda: maximum_path(scores, *sizes),
        "ours, dense": lambda: dense_path(maximum_path(scores, *sizes), text),
        "ours, index, frames first": lambda: maximum_path(turned, *sizes),
    }
    exact = maximum_path(scores.double(), *sizes, kernel="torch")
    ours = maximum_path(scores, *sizes)
    facts = {
        "frames unlike float64": float((ours != exact).sum()),
        "frames unlike float64 at scores near -1e8": unlike_at_large_scores(scores, sizes),
        "frames unlike the package": float(
            (dense_path(ours, text) != rival(scores, mask)).any(1).sum()
        ),
    }
    title = f"alignment, {batch} x {text} positions x {frames} frames"
    return Case(title, "Cython package", works, facts, weighed=True)


def unlike_at_large_scores(scores: Tensor, sizes: tuple[Tensor, Tensor]) -> float:
    """Frames that differ from float64 where scores lie near -1e8."""
    from voicehub_vits.losses import maximum_path

    large = (scores * 1e3 - 1e8).float()
    exact = maximum_path(large.double(), *sizes, kernel="torch")
    return float((maximum_path(large, *sizes) != exact).sum())


def ctc(batch: int, frames: int, tokens: int, labels: int) -> Case:
    """Loss and gradient of logits as an untrained model has them."""
    from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood

    torch.manual_seed(0)
    logits = torch.randn(batch, frames, tokens, requires_grad=True)
    target = torch.randint(1, tokens, (batch, labels))
    sizes = (torch.full((batch,), frames), target, torch.full((batch,), labels))

    def step(kernel: str) -> Tensor:
        losses = ctc_negative_log_likelihood(logits, *sizes, blank=0, kernel=kernel)
        (gradient,) = torch.autograd.grad(losses.mean(), logits)
        return gradient

    def exact(kernel: str) -> float:
        wide = logits.detach().double().requires_grad_()
        losses = ctc_negative_log_likelihood(wide, *sizes, blank=0, kernel="native")
        (gradient,) = torch.autograd.grad(losses.mean(), wide)
        return float((step(kernel) - gradient).abs().max()) * batch

    facts = {
        "gradient error": exact("c"),
        "gradient error of torch": exact("native"),
        "gradient error at 3,000 frames": long_error(),
    }
    works: dict[str, Work] = {
        "log_softmax + ctc_loss": lambda: float(step("native")[0, 0, 0]),
        "ours": lambda: float(step("c")[0, 0, 0]),
    }
    title = f"ctc, {batch} x {frames} frames x {tokens} tokens"
    return Case(title, "log_softmax + ctc_loss", works, facts, weighed=True)


def long_error() -> float:
    """Greatest error of our gradient over 3,000 frames in float32."""
    from voicehub_asr_ctc.losses.ops import ctc_negative_log_likelihood

    torch.manual_seed(1)
    logits, target = torch.randn(1, 3000, 32), torch.randint(1, 32, (1, 300))
    sizes = (torch.tensor([3000]), target, torch.tensor([300]))
    gradients = []
    for dtype, kernel in ((torch.float32, "c"), (torch.float64, "native")):
        values = logits.detach().to(dtype, copy=True).requires_grad_()
        ctc_negative_log_likelihood(values, *sizes, blank=0, kernel=kernel).sum().backward()
        gradients.append(values.grad.double())
    return float((gradients[0] - gradients[1]).abs().max())


def regularisers(batch: int, frames: int, tokens: int) -> Case:
    """Divergences of label smoothing and of two views, beside the lines that recipes write."""
    from torch.nn import functional

    from voicehub_asr_ctc.losses.divergence import consistency, uniform_divergence

    torch.manual_seed(0)
    views = [torch.randn(batch, frames, tokens, requires_grad=True) for _ in range(2)]
    lengths = torch.linspace(frames * 0.5, frames, batch).long()
    mask = (torch.arange(frames) < lengths[:, None])[..., None]

    def lines() -> tuple[Tensor, ...]:
        p, q = (view.log_softmax(-1) for view in views)
        smooth = -(p.mean(-1, keepdim=True) * mask).sum()
        to_p = functional.kl_div(p, q.detach(), reduction="none", log_target=True)
        to_q = functional.kl_div(q, p.detach(), reduction="none", log_target=True)
        return torch.autograd.grad(smooth + 0.5 * ((to_p + to_q) * mask).sum(), views)

    def ours() -> tuple[Tensor, ...]:
        apart = consistency(*views, lengths)
        return torch.autograd.grad((uniform_divergence(views[0], lengths) + apart).sum(), views)

    pairs = zip(ours(), lines(), strict=True)
    error = max(float((own - other).abs().max()) for own, other in pairs)
    if error > 1e-5:
        raise RuntimeError(f"gradients differ from those of the lines by {error:.1e}")
    works: dict[str, Work] = {
        "log_softmax + kl_div": lambda: float(lines()[0][0, 0, 0]),
        "ours": lambda: float(ours()[0][0, 0, 0]),
    }
    title = f"ctc regularisers, {batch} x {frames} frames x {tokens} tokens"
    facts = {"greatest difference of a gradient": error}
    return Case(title, "log_softmax + kl_div", works, facts, weighed=True)


def linear_cross_entropy(rows: int, size: int, heads: int, vocabulary: int, masked: float) -> Case:
    """Loss and gradients of hidden states and heads, with so large a share of masked labels."""
    from torch.nn import functional

    from voicehub.losses.linear_cross_entropy import IGNORED
    from voicehub.losses.linear_cross_entropy import linear_cross_entropy as fused

    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, size, generator=generator, requires_grad=True)
    weight = torch.randn(heads, vocabulary, size, generator=generator)
    weight = (weight / size**0.5).requires_grad_()
    labels = torch.randint(0, vocabulary, (rows, heads), generator=generator)
    labels[torch.rand(rows, heads, generator=generator) < masked] = IGNORED

    def materialised() -> tuple[Tensor, ...]:
        logits = functional.linear(hidden, weight.flatten(0, 1)).view(rows * heads, vocabulary)
        loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)
        return torch.autograd.grad(loss, (hidden, weight))

    def ours() -> tuple[Tensor, ...]:
        found = fused(hidden, weight, labels)
        loss = found.total / found.counts.sum().float()
        return torch.autograd.grad(loss, (hidden, weight))

    pairs = zip(ours(), materialised(), strict=True)
    error = max(float((own - other).abs().max() / other.abs().max()) for own, other in pairs)
    if error > 1e-4:
        raise RuntimeError(f"gradients differ from the materialised ones' by {error:.1e}")
    works: dict[str, Work] = {
        "logits + cross_entropy": lambda: float(materialised()[0][0, 0]),
        "ours": lambda: float(ours()[0][0, 0]),
    }
    title = f"linear cross-entropy, {rows} x {size} to {heads} x {vocabulary}, {masked:.0%} masked"
    facts = {"greatest difference of a gradient, relative": error}
    return Case(title, "logits + cross_entropy", works, facts, weighed=True)


def aam_softmax(classes: int = 100_000) -> Case:
    """Margin softmax over many speakers, beside the textbook's; sizes are of ``aam_softmax.py``.

    Peaks are resident memory in processes of their own: the gradient of the prototypes is larger
    than all that ours needs beside it.
    """
    import aam_softmax as systems

    inputs = systems.make_inputs(classes)
    expected = systems.step(systems.textbook, inputs)
    systems.check_that_they_agree("ours", systems.step(systems.ours, inputs), expected)
    names = {"textbook": "textbook", "voicehub": "ours"}
    works: dict[str, Work] = {
        name: lambda system=systems.SYSTEMS[key]: systems.step(system, inputs)  # type: ignore[misc]
        for key, name in names.items()
    }
    case = Case(
        f"aam softmax, {systems.BATCH} x {systems.SIZE}, {classes:,} classes", "textbook", works
    )
    case.megabytes = {name: systems.resident_peak_mb(key, classes) for key, name in names.items()}
    return case


def velocity(batch: int, frames: int, channels: int, dtype: torch.dtype = torch.float32) -> Case:
    """Error of a predicted velocity and its gradient, beside the lines that recipes write."""
    from voicehub_flow.losses import masked_velocity_error

    torch.manual_seed(0)
    prediction, noise, data = (torch.randn(batch, frames, channels) for _ in range(3))
    prediction = prediction.to(dtype).requires_grad_()
    lengths = torch.linspace(frames * 0.5, frames, batch).long()
    mask = torch.arange(frames) < lengths[:, None]
    items = mask.sum() * channels

    def eager() -> tuple[Tensor, Tensor]:
        target = data - noise
        squares = torch.nn.functional.mse_loss(prediction.float(), target, reduction="none")
        loss = (squares * mask[..., None]).sum() / items
        return loss, torch.autograd.grad(loss, prediction)[0]

    def selected() -> tuple[Tensor, Tensor]:
        target = data - noise
        loss = torch.nn.functional.mse_loss(prediction[mask].float(), target[mask])
        return loss, torch.autograd.grad(loss, prediction)[0]

    def ours() -> tuple[Tensor, Tensor]:
        loss = masked_velocity_error(prediction, noise, data, mask).sum() / items
        return loss, torch.autograd.grad(loss, prediction)[0]

    exact = (prediction.detach().double() - (data.double() - noise.double())) * mask[..., None]
    slope = 2.0 * exact / items
    errors = {
        name: float((work()[1].double() - slope).abs().max() / slope.abs().max())
        for name, work in (("eager", eager), ("ours", ours))
    }
    works: dict[str, Work] = {
        "three passes": lambda: float(eager()[1][0, 0, 0]),
        "valid frames selected": lambda: float(selected()[1][0, 0, 0]),
        "ours": lambda: float(ours()[1][0, 0, 0]),
    }
    facts = {
        "gradient error, relative": errors["ours"],
        "gradient error of torch, relative": errors["eager"],
    }
    kind = str(dtype).removeprefix("torch.")
    title = f"velocity, {batch} x {frames} frames x {channels} channels, {kind}"
    return Case(title, "three passes", works, facts, weighed=True)

"""What ``gpu_losses.py`` checks and times of losses in torch operators, which have no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpu_checks import DTYPES, Check, Found, Work, beyond, tolerance, unequal, unlike_compiled
from torch import Tensor
from torch.nn import functional

from voicehub.losses.linear_cross_entropy import IGNORED, linear_cross_entropy
from voicehub_asr_ctc.losses.divergence import consistency, uniform_divergence
from voicehub_xvector.losses.aam_softmax import aam_softmax


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
    bad = labels.clone()
    bad[0, 0], bad[1, 1] = 1024, -1  # a device that reads there is lost to the process
    spoiled = linear_cross_entropy(hidden, weight, bad, check=False).sums
    if spoiled.isnan().tolist() != [True, True, *[False] * 6]:
        wrong.append("bad labels are not flagged")
    wrong += unequal(lambda: linear_step(hidden, weight, labels))
    return wrong + unlike_compiled(
        lambda *leaves: linear_cross_entropy(*leaves, labels).total, hidden, weight
    )


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


#: With one prototype a class, and with sub-centres and the margin of near wrong classes.
AAM: tuple[dict[str, Any], ...] = (
    {"scale": 30.0, "margin": 0.2},
    {
        "scale": 30.0,
        "margin": 0.2,
        "sub_centres": 2,
        "inter_top_k": 5,
        "inter_margin": 0.06,
    },
)


def aam_step(embeddings: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> Found:
    leaves = embeddings.detach().requires_grad_(), weight.detach().requires_grad_()
    losses = aam_softmax(*leaves, labels, **{**AAM[0], **options})
    gradients = torch.autograd.grad(losses.sum(), leaves)
    return losses.detach(), torch.cat([gradient.flatten() for gradient in gradients])


def aam_numbers(device: str) -> list[str]:
    wrong: list[str] = []
    for options in AAM:
        centres = options.get("sub_centres", 1)
        embeddings, weight, labels = aam_batch(3000, device)
        labels = labels // centres
        found = aam_step(embeddings, weight, labels, **options)
        exact = aam_step(embeddings.double().cpu(), weight.double().cpu(), labels.cpu(), **options)
        wrong += beyond(f"{centres} centres, loss", found[0], exact[0], 1e-5)
        wrong += beyond(f"{centres} centres, gradients", found[1], exact[1], 1e-4)
        inputs = (embeddings, weight, labels)
        wrong += unequal(lambda inputs=inputs, options=options: aam_step(*inputs, **options))  # type: ignore[misc]
        wrong += unlike_compiled(
            lambda *leaves, labels=labels, options=options: aam_softmax(  # type: ignore[misc]
                *leaves, labels, check=False, **options
            ),
            embeddings,
            weight,
        )
    return wrong


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


def divergence_batch(shape: tuple[int, int, int], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two views, and frame lengths from none to all."""
    torch.manual_seed(0)
    lengths = torch.linspace(0, shape[1], shape[0]).long()
    return torch.randn(shape).to(device), torch.randn(shape).to(device), lengths.to(device)


def divergence_step(one: Tensor, two: Tensor, lengths: Tensor) -> Found:
    leaves = one.detach().requires_grad_(), two.detach().requires_grad_()
    losses = uniform_divergence(leaves[0], lengths) + consistency(*leaves, lengths)
    return losses.detach(), torch.stack(torch.autograd.grad(losses.sum(), leaves))


def divergence_numbers(device: str) -> list[str]:
    one, two, lengths = divergence_batch((6, 90, 300), device)
    wrong: list[str] = []
    for dtype in DTYPES:
        own = one.to(dtype), two.to(dtype)
        exact = divergence_step(*(view.double().cpu() for view in own), lengths.cpu())
        found = divergence_step(*own, lengths)
        wrong += beyond(f"{dtype}, loss", found[0], exact[0], 1e-5)
        wrong += beyond(f"{dtype}, gradients", found[1], exact[1], tolerance(dtype))
    wrong += unequal(lambda: divergence_step(one, two, lengths))
    return wrong + unlike_compiled(
        lambda *views: uniform_divergence(views[0], lengths) + consistency(*views, lengths),
        one,
        two,
    )


def divergence_works() -> dict[str, Work]:
    one, two, _ = divergence_batch((16, 400, 5000), "cuda")
    lengths = torch.full((16,), 400, device="cuda")

    def lines() -> Tensor:
        leaves = one.detach().requires_grad_(), two.detach().requires_grad_()
        p, q = (leaf.log_softmax(-1) for leaf in leaves)
        options: dict[str, Any] = {"reduction": "sum", "log_target": True}
        apart = functional.kl_div(p, q.detach(), **options)
        apart = 0.5 * (apart + functional.kl_div(q, p.detach(), **options))
        return torch.autograd.grad(apart - p.mean(-1).sum(), leaves)[0]

    return {
        "ours": lambda: divergence_step(one, two, lengths),
        "log_softmax and kl_div": lines,
    }


TORCH_CHECKS: Mapping[str, Check] = {
    "divergences": Check(divergence_numbers, divergence_works),
    "linear-cross-entropy": Check(linear_numbers, linear_works),
    "aam-softmax": Check(aam_numbers, aam_works),
}

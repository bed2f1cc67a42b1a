"""From hidden states to the loss, without the logits of all positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from voicehub.kernels import load_loss
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_asr_llm.decoders.loading import base_of, plain

_PROBED = 4


@dataclass(frozen=True)
class TokenLoss:
    """What a batch costs.

    Attributes:
        total: sum of the cross-entropies, scalar.
        count: labels that were asked for, int64 scalar.
        best: the most likely token of each labelled position, int64; None where nobody asked.
    """

    total: Tensor
    count: Tensor
    best: Tensor | None = None


def reads_plainly(model: nn.Module) -> bool:
    """Whether logits are hidden states times the output layer, as the fused loss takes them.

    Some decoders add a bias, divide, or squash what comes out. Found out by a forward, except for
    squashing, which leaves small logits nearly as they were.
    """
    inner = plain(model)
    if getattr(inner.config.get_text_config(), "final_logit_softcapping", None):
        return False
    embed = inner.get_input_embeddings()
    output = inner.get_output_embeddings()
    if output is None or getattr(output, "bias", None) is not None:
        return False
    training = inner.training
    inner.eval()
    try:
        with torch.no_grad():
            ids = torch.arange(_PROBED, device=embed.weight.device) % embed.weight.shape[0]
            inputs = {"input_ids": ids[None], "use_cache": False}
            hidden = base_of(model)(**inputs).last_hidden_state
            logits = inner(**inputs).logits
            found = functional.linear(hidden, output.weight)
            return bool(torch.allclose(found.float(), logits.float(), rtol=1e-3, atol=1e-4))
    finally:
        inner.train(training)


def fused(model: nn.Module, hidden: Tensor, labels: Tensor, *, wants_best: bool) -> TokenLoss:
    """Cross-entropy of labelled positions by ``core.linear_cross_entropy``.

    Args:
        model: the decoder.
        hidden: (rows, steps, width), what its output layer reads.
        labels: int64 (rows, steps), ``IGNORED`` where nothing is asked.
        wants_best: also say the most likely tokens.
    """
    weight = plain(model).get_output_embeddings().weight
    rows, asked = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
    found = load_loss("core.linear_cross_entropy")(rows, weight[None], asked[:, None])
    count = (asked != IGNORED).sum()
    best = _best(rows[asked != IGNORED], weight) if wants_best else None
    return TokenLoss(found.total, count, best)


def materialised(logits: Tensor, labels: Tensor, *, wants_best: bool) -> TokenLoss:
    """The same by plain operators over logits (rows, steps, vocabulary)."""
    flat, asked = logits.flatten(0, 1), labels.reshape(-1)
    wide = flat if flat.dtype == torch.float64 else flat.float()
    total = functional.cross_entropy(wide, asked, ignore_index=IGNORED, reduction="sum")
    valid = asked != IGNORED
    return TokenLoss(total, valid.sum(), flat[valid].argmax(-1) if wants_best else None)


def asked_steps(labels: Tensor) -> Tensor:
    """Steps that are labelled in any row, int64, ascending."""
    return (labels != IGNORED).any(0).nonzero().flatten()


def _best(rows: Tensor, weight: Tensor) -> Tensor:
    parts: Any = [(part.to(weight.dtype) @ weight.T).argmax(-1) for part in rows.split(512)]
    return torch.cat(parts) if parts else rows.new_zeros(0, dtype=torch.long)

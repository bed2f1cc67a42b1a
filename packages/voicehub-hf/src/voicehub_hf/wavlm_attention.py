"""WavLM's self-attention through its projection modules.

``transformers`` computes it with ``F.multi_head_attention_forward`` on the weights of
``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj``: the modules themselves are never called.
Anything that replaces or hooks them, such as a LoRA layer, is without effect there and gets no
gradient. The function below computes the same attention and calls the modules.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from voicehub_hf.encoders import unwrapped


def call_attention_projections(model: nn.Module) -> int:
    """Let every WavLM attention of ``model`` call its projections; return how many there are.

    Outputs and gradients stay the same up to rounding. Attention weights are never formed, so
    ``output_attentions`` gives none. Models of other types are left alone.
    """
    changed = 0
    for module in unwrapped(model).modules():
        if type(module).__name__ == "WavLMAttention":
            module.torch_multi_head_self_attention = MethodType(_self_attention, module)
            changed += 1
    return changed


def restore_attention(model: nn.Module) -> None:
    """Undo :func:`call_attention_projections`."""
    for module in unwrapped(model).modules():
        module.__dict__.pop("torch_multi_head_self_attention", None)


def _self_attention(
    self: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    gated_position_bias: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention with an additive bias.

    Args:
        hidden_states: (B, T, H).
        attention_mask: (B, T), 1 for valid frames, or ``None``.
        gated_position_bias: (B * heads, T, T), added to the scores.
        _: early 5.x versions of transformers say here whether they want the weights.
    """
    batch, frames, _ = hidden_states.shape

    def heads(projection: nn.Module) -> torch.Tensor:
        projected: torch.Tensor = projection(hidden_states)
        return projected.view(batch, frames, self.num_heads, self.head_dim).transpose(1, 2)

    bias = gated_position_bias.view(batch, self.num_heads, frames, frames)
    if attention_mask is not None:
        padding = attention_mask.ne(1)[:, None, None, :]
        bias = bias.masked_fill(padding, float("-inf"))
    attended = F.scaled_dot_product_attention(
        heads(self.q_proj),
        heads(self.k_proj),
        heads(self.v_proj),
        attn_mask=bias.to(hidden_states.dtype),
        dropout_p=self.dropout if self.training else 0.0,
    )
    output: torch.Tensor = self.out_proj(attended.transpose(1, 2).reshape(batch, frames, -1))
    return output, None

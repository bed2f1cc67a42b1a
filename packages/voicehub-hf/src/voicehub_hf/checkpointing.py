"""Trading time for memory in the encoder's layers."""

from __future__ import annotations

from torch import nn

from voicehub_hf.encoders import unwrapped


def enable_gradient_checkpointing(model: nn.Module) -> None:
    """Recompute the activations of each encoder layer in the backward pass.

    The non-reentrant form of ``torch.utils.checkpoint`` is used: it works where the first layers
    are frozen and no input requires a gradient, as with adapters.
    """
    inner = unwrapped(model)
    # Renamed in transformers 5.
    enable = getattr(inner, "activation_checkpointing_enable", inner.gradient_checkpointing_enable)
    enable({"use_reentrant": False})

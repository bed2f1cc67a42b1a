"""The output scale: a new projector speaks as loud as the decoder's own embeddings."""

from __future__ import annotations

import torch

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import ConfigurationError
from voicehub_asr_llm.projectors.base import Projector

#: Outputs that a probe has.
_PROBE_OUTPUTS = 1024


def probe_rms(projector: Projector, encoder_size: int, *, seed: int) -> float:
    """Root mean square of the outputs for frames of standard normal noise."""
    parameter = next(projector.parameters())
    frames = _PROBE_OUTPUTS * projector.stride
    generator = torch_generator("asr-llm-probe", seed)
    noise = torch.randn(1, frames, encoder_size, generator=generator).to(parameter)
    with torch.no_grad():
        outputs = projector(noise, torch.tensor([frames], device=parameter.device)).outputs
    return float(outputs.float().square().mean().sqrt())


def calibrate(projector: Projector, encoder_size: int, target: float, *, seed: int = 0) -> float:
    """Set ``output_scale`` once, so that the outputs' root mean square is ``target``.

    Returns:
        What it was before.

    Raises:
        ConfigurationError: outputs or target are zero or not finite.
    """
    before = probe_rms(projector, encoder_size, seed=seed)
    if not (0 < before < float("inf") and 0 < target < float("inf")):
        raise ConfigurationError(
            f"the projector cannot be calibrated: its outputs have a root mean square of "
            f"{before:g}, the target is {target:g}. Set model.projector.output_rms to a number, or "
            "to null."
        )
    projector.output_scale.mul_(target / before)
    return before

"""From noise to mel frames, guided."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from voicehub.data.keyed_random import torch_generator
from voicehub_flow.config import SynthesisSettings
from voicehub_flow.solvers import guided, integrate
from voicehub_flow.tts.network import DiT


def speak_frames(
    module: DiT,
    ids: Sequence[int],
    frames: int,
    settings: SynthesisSettings,
    *,
    speaker: int = 0,
    context: Tensor | None = None,
    seed: int = 0,
) -> Tensor:
    """Make the frames of a text.

    Args:
        module: in evaluation mode.
        ids: tokens; those of the context first.
        frames: to be made.
        settings: guidance and solver.
        speaker: row of the speaker table.
        context: scaled frames (n, bins) of a recording that goes before; None for none.
        seed: of the noise.

    Returns:
        Scaled frames float32 (frames, bins), without the context.
    """
    weight = module.proj_out.weight
    known = weight.new_zeros(0, module.channels) if context is None else context.to(weight)
    total = len(known) + frames
    generator = torch_generator("flow", seed, "noise")
    noise = torch.randn(total, module.channels, generator=generator).to(weight)
    given = torch.cat((known, weight.new_zeros(frames, module.channels)))
    field = _Field(module, ids, given, speaker, settings.guidance_scale)
    made = integrate(field, noise, method=settings.method, steps=settings.steps, sway=settings.sway)
    return made[len(known) :].float()


class _Field:
    """The guided velocity of one utterance; both halves of the guidance share a forward."""

    def __init__(
        self, module: DiT, ids: Sequence[int], context: Tensor, speaker: int, scale: float
    ) -> None:
        self.module, self.scale = module, scale
        # g = 1 needs no null velocity, and g = 0 nothing else.
        self.drop = [False] if scale == 1 else [True] if scale == 0 else [False, True]
        count, device = len(self.drop), context.device
        self.context = context.expand(count, -1, -1)
        self.ids = torch.tensor([list(ids)], device=device).expand(count, -1)
        self.tokens = torch.tensor([len(ids)] * count, device=device)
        self.frames = torch.tensor([len(context)] * count, device=device)
        self.speakers = torch.tensor([speaker] * count, device=device)
        self.dropped = torch.tensor(self.drop, device=device)

    def __call__(self, time: Tensor, values: Tensor) -> Tensor:
        """Velocity (frames, bins) at a time and place."""
        count = len(self.drop)
        found: Tensor = self.module(
            values.expand(count, -1, -1),
            self.context,
            time.expand(count),
            self.ids,
            self.tokens,
            self.frames,
            drop_audio=self.dropped,
            drop_text=self.dropped,
            speakers=self.speakers,
        )
        return found[0] if count == 1 else guided(found[0], found[1], self.scale)

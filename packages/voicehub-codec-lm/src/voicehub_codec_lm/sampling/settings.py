"""How codes are drawn."""

from __future__ import annotations

from pydantic import Field

from voicehub.trainer.section import Section


class SamplingSettings(Section):
    """How codes are drawn.

    Attributes:
        temperature: logits are divided by it; 0 takes the most likely code.
        top_k: only the most likely so many; None takes all.
        top_p: only the most likely codes that together have this probability (Holtzman et al.
            2020).
        repetition_penalty: logits of codes that were drawn lately are moved down by this factor
            (Keskar et al. 2019, section 4.1); 1 leaves them.
        repetition_window: how many steps count as lately.
        guidance_scale: strength g of classifier-free guidance, null + g (conditioned - null); 1 is
            plain. Layouts that are never trained without their text take 1 alone.
        max_seconds: speech ends here if it has not ended before.
    """

    temperature: float = Field(default=1.0, ge=0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float = Field(default=1.0, gt=0, le=1)
    repetition_penalty: float = Field(default=1.0, ge=1)
    repetition_window: int = Field(default=32, ge=1)
    guidance_scale: float = Field(default=1.0, ge=1)
    max_seconds: float = Field(default=20.0, gt=0)

"""Settings of the speaker classification loss; imports no tensor library."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section


class LossConfig(Section):
    """Softmax over cosines with a margin.

    Attributes:
        kind: ``softmax``: s cos t, no margin; ``am``: s (cos t - m) for the right speaker;
            ``aam``: s cos(t + m) for the right speaker.
        scale: s.
        margin: m; radians for ``aam``, a cosine for ``am``, ignored and 0 for ``softmax``.
        sub_centres: prototypes of each speaker; the nearest one counts.
        inter_top_k: so many of the nearest wrong speakers are pushed away further; 0: none.
        inter_top_k_margin: by how much: cos(t - m') for ``aam``, cos t + m' for the others.
        margin_warmup: both margins grow linearly from 0 over so many steps or epochs; 0: none.
        margin_warmup_unit: what ``margin_warmup`` counts.
        class_chunk: prototypes compared with a batch at once; bounds memory, and changes results
            only by rounding.
    """

    kind: Literal["softmax", "am", "aam"] = "aam"
    scale: float = Field(default=30.0, gt=0)
    margin: float = Field(default=0.2, ge=0, lt=1.5)
    sub_centres: int = Field(default=1, ge=1)
    inter_top_k: int = Field(default=0, ge=0)
    inter_top_k_margin: float = Field(default=0.1, ge=0, lt=1.5)
    margin_warmup: float = Field(default=0.0, ge=0)
    margin_warmup_unit: Literal["step", "epoch"] = "epoch"
    class_chunk: int = Field(default=2048, ge=1)

    @model_validator(mode="after")
    def _one_home(self) -> Self:
        # A resolved configuration states every default; only another value was meant to be read.
        fields = type(self).model_fields
        changed = {name for name in fields if getattr(self, name) != fields[name].default}
        if self.kind == "softmax" and "margin" in changed and self.margin:
            raise ValueError("margin does nothing where kind is 'softmax'; use 'am' or 'aam'")
        if "inter_top_k_margin" in changed and not self.inter_top_k:
            raise ValueError("inter_top_k_margin does nothing where inter_top_k is 0")
        if "margin_warmup_unit" in changed and not self.margin_warmup:
            raise ValueError("margin_warmup_unit does nothing where margin_warmup is 0")
        return self

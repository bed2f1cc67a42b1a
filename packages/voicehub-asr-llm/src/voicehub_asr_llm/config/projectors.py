"""Sections of the projector, which turns frames of the encoder into inputs of the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section


class _Projector(Section):
    """What all projectors share.

    Attributes:
        stride: so many frames become one input of the decoder; a rest that is shorter goes.
        output_rms: root mean square of the outputs after initialisation: ``auto`` is that of the
            decoder's embeddings, None leaves it as it comes out.
        frame_dropout: share of the encoder's frames that are zeroed in training.
        learning_rate, weight_decay: None takes those of ``training``.
    """

    stride: int = Field(default=4, ge=1)
    output_rms: Annotated[float, Field(gt=0)] | Literal["auto"] | None = "auto"
    frame_dropout: float = Field(default=0.0, ge=0, lt=1)
    learning_rate: float | None = Field(default=None, ge=0)
    weight_decay: float | None = Field(default=None, ge=0)


class MlpProjectorConfig(_Projector):
    """Frames side by side, normalised, through two linear layers.

    Attributes:
        hidden_size: between the two.
    """

    kind: Literal["mlp"] = "mlp"
    hidden_size: int = Field(default=4096, gt=0)


class MoeProjectorConfig(_Projector):
    """A shared expert and routed ones, of which each position takes the best.

    Attributes:
        hidden_size: of each expert.
        experts, active: routed ones, and how many of them a position takes.
        balance_weight: of the loss that keeps all experts in use.
        z_weight: of the loss that keeps the router's scores small.
    """

    kind: Literal["moe"] = "moe"
    hidden_size: int = Field(default=1024, gt=0)
    experts: int = Field(default=4, ge=2)
    active: int = Field(default=2, ge=1)
    balance_weight: float = Field(default=0.01, ge=0)
    z_weight: float = Field(default=1e-4, ge=0)

    @model_validator(mode="after")
    def _few_are_active(self) -> Self:
        if self.active > self.experts:
            raise ValueError(f"active {self.active} is more than experts {self.experts}")
        return self


class QFormerProjectorConfig(_Projector):
    """Learned queries that look at a window of frames each.

    Attributes:
        window: outputs of one window, which therefore spans ``window * stride`` frames.
        hidden_size: of the queries.
        num_layers, num_heads: of attention between queries and to frames.
    """

    kind: Literal["qformer"] = "qformer"
    stride: int = Field(default=5, ge=1)
    window: int = Field(default=3, ge=1)
    hidden_size: int = Field(default=1024, gt=0)
    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}"
            )
        return self


def _mlp_by_default(value: Any) -> Any:
    return {"kind": "mlp", **value} if isinstance(value, Mapping) else value


ProjectorConfig = Annotated[
    Annotated[
        MlpProjectorConfig | MoeProjectorConfig | QFormerProjectorConfig,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_mlp_by_default),
]

"""Settings of fuser and heads; no tensor library is imported here."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section

Norm = Literal["batch", "layer"]


class PoolingConfig(Section):
    """From frames to one vector.

    Attributes:
        kind: ``mean``; ``mean+stddev``; ``mean+logvar``; ``lde``: learnable dictionary encoding;
            ``scaled-dot-product``: multi-head attention with a learnt query; ``channel-attention``:
            mean and deviation under weights that each channel has of its own (as in ECAPA).
        heads: of ``scaled-dot-product``.
        components: of the dictionary of ``lde``.
        attention_size: hidden units of ``channel-attention``.
    """

    kind: Literal[
        "mean", "mean+stddev", "mean+logvar", "lde", "scaled-dot-product", "channel-attention"
    ] = "mean+stddev"
    heads: int = Field(default=4, ge=1)
    components: int = Field(default=16, ge=1)
    attention_size: int = Field(default=128, ge=1)

    @model_validator(mode="after")
    def _read(self) -> Self:
        readers = {
            "heads": "scaled-dot-product",
            "components": "lde",
            "attention_size": "channel-attention",
        }
        for name, kind in readers.items():
            changed = getattr(self, name) != type(self).model_fields[name].default
            if changed and self.kind != kind:
                raise ValueError(f"{name} is read by pooling kind '{kind}' alone")
        return self


class _HeadConfig(Section):
    """Attributes:
    pooling: from frames to one vector.
    embedding_size: of the embedding.
    """

    pooling: PoolingConfig = Field(default_factory=PoolingConfig)
    embedding_size: int = Field(default=256, ge=1)


class ResNet1dConfig(_HeadConfig):
    """Residual convolutions over time.

    Attributes:
        block: ``basic``: two convolutions; ``bn``: bottleneck of three; ``se``: basic with squeeze
            and excitation; ``res2``: bottleneck whose middle is cut into scales; ``se-res2``: both.
        in_channels, in_kernel: of the first convolution.
        channels, repeats, kernels, strides, dilations: one number a stage.
        bottleneck: inner channels of ``bn`` and ``res2`` blocks over outer ones.
        se_ratio: channels over hidden units of squeeze and excitation.
        scales: of Res2 blocks.
        concatenate: pool over the outputs of all stages, not of the last one alone; their strides
            must be 1.
        endpoint_channels: of a last convolution before the pooling; 0: none.
        norm: ``batch`` over the valid frames of a batch, or ``layer``: each frame by itself, so
            that an utterance's training loss does not depend on its batch mates.
        dropout: before the embedding layer.
    """

    kind: Literal["resnet1d"] = "resnet1d"
    block: Literal["basic", "bn", "se", "res2", "se-res2"] = "basic"
    in_channels: int = Field(default=128, ge=1)
    in_kernel: int = Field(default=3, ge=1)
    channels: list[int] = Field(default_factory=lambda: [128, 128, 128])
    repeats: list[int] = Field(default_factory=lambda: [1, 1, 1])
    kernels: list[int] = Field(default_factory=lambda: [3, 3, 3])
    strides: list[int] = Field(default_factory=lambda: [1, 1, 1])
    dilations: list[int] = Field(default_factory=lambda: [1, 2, 3])
    bottleneck: float = Field(default=0.5, gt=0)
    se_ratio: int = Field(default=16, ge=1)
    scales: int = Field(default=4, ge=2)
    concatenate: bool = False
    endpoint_channels: int = Field(default=0, ge=0)
    norm: Norm = "batch"
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _stages_agree(self) -> Self:
        lists = {
            name: getattr(self, name)
            for name in ("channels", "repeats", "kernels", "strides", "dilations")
        }
        sizes = {name: len(values) for name, values in lists.items()}
        if len(set(sizes.values())) != 1 or not self.channels:
            shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(f"give one number a stage to each of: {shown}")
        if any(value < 1 for values in lists.values() for value in values):
            raise ValueError(f"{', '.join(lists)} must be at least 1")
        if any(kernel % 2 == 0 for kernel in (self.in_kernel, *self.kernels)):
            raise ValueError("kernels must be odd, so that frames keep their place")
        if self.concatenate and set(self.strides) != {1}:
            raise ValueError("concatenate needs strides of 1: stages must have equal frames")
        if "res2" in self.block and any(
            int(width * self.bottleneck) % self.scales for width in self.channels
        ):
            raise ValueError(
                f"channels x bottleneck must be multiples of scales ({self.scales}) for Res2 blocks"
            )
        return self


class ResNet34Config(_HeadConfig):
    """Two-dimensional residual network over features and time (He et al. 2016).

    Attributes:
        base_channels: of the first stage; doubled at each of the three others.
        blocks: basic blocks of each stage; 3, 4, 6, 3 is ResNet34.
        dropout: before the embedding layer.
    """

    kind: Literal["resnet34"] = "resnet34"
    base_channels: int = Field(default=32, ge=1)
    blocks: tuple[int, int, int, int] = (3, 4, 6, 3)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class EcapaConfig(Section):
    """ECAPA-TDNN (Desplanques et al. 2020), speechbrain's module.

    Utterances of unequal length run apart: its convolutions mirror the signal at its ends.

    Attributes:
        channels: of the four blocks, and of the layer that joins them.
        kernels, dilations: of the same five.
        attention_channels: of the attentive statistics pooling.
        scales: of its Res2 blocks.
        se_channels: of its squeeze and excitation.
        embedding_size: of the embedding.
        dropout: in its convolution blocks.
    """

    kind: Literal["ecapa"] = "ecapa"
    channels: tuple[int, int, int, int, int] = (1024, 1024, 1024, 1024, 3072)
    kernels: tuple[int, int, int, int, int] = (5, 3, 3, 3, 1)
    dilations: tuple[int, int, int, int, int] = (1, 2, 3, 4, 1)
    attention_channels: int = Field(default=128, ge=1)
    scales: int = Field(default=8, ge=2)
    se_channels: int = Field(default=128, ge=1)
    embedding_size: int = Field(default=192, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class ConformerConfig(_HeadConfig):
    """Conformer blocks (Gulati et al. 2020) with relative positions.

    Attributes:
        hidden_size, num_heads, num_blocks, feed_forward_size, kernel_size: of the blocks.
        stride: frames that the first convolution joins to one; its kernel is twice as wide.
        dropout: in the blocks.
    """

    kind: Literal["conformer"] = "conformer"
    hidden_size: int = Field(default=256, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_blocks: int = Field(default=6, ge=1)
    feed_forward_size: int = Field(default=2048, ge=1)
    kernel_size: int = Field(default=31, ge=1)
    stride: int = Field(default=1, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}"
            )
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        return self


HeadConfig = Annotated[
    ResNet1dConfig | ResNet34Config | EcapaConfig | ConformerConfig, Field(discriminator="kind")
]


class FuserConfig(Section):
    """How hidden states of an encoder become the head's input.

    Hidden state 0 enters the first layer; hidden state n leaves layer n.

    Attributes:
        kind: ``last``: the highest of them; ``weighted-avg``: softmax of one number a state, which
            starts as the plain mean; ``linear``: a weighted sum without bias, which starts as the
            mean; ``cat``: all side by side through a linear layer.
        start: first hidden state that is fused.
        stop: last one; layers above it are dropped. None: the highest there is.
        size: of a projection behind it; None: none (``cat``: the encoder's width).
        normalize: of each feature over an utterance's frames: ``none``, ``mean``, or
            ``mean+variance``.
    """

    kind: Literal["last", "weighted-avg", "linear", "cat"] = "weighted-avg"
    start: int = Field(default=0, ge=0)
    stop: int | None = Field(default=None, ge=0)
    size: int | None = Field(default=None, ge=1)
    normalize: Literal["none", "mean", "mean+variance"] = "none"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.stop is not None and self.stop < self.start:
            raise ValueError(f"stop {self.stop} is below start {self.start}")
        if self.kind == "last" and self.start:
            raise ValueError("start does nothing where kind is 'last'; stop says which state it is")
        return self

"""Sizes, rates and weights of a model's parts."""

from __future__ import annotations

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub.trainer.section import Section
from voicehub_vits.specs import PERIODS


class ArchitectureConfig(Section):
    """Sizes of a model from random weights; names and defaults are those of ``VitsConfig``.

    ``speaker_embedding_size`` over 0 makes a voice for every speaker of the training manifest.
    """

    hidden_size: int = Field(default=192, gt=0)
    num_hidden_layers: int = Field(default=6, gt=0)
    num_attention_heads: int = Field(default=2, gt=0)
    window_size: int = Field(default=4, gt=0)
    ffn_dim: int = Field(default=768, gt=0)
    ffn_kernel_size: int = Field(default=3, gt=0)
    flow_size: int = Field(default=192, gt=0)
    use_stochastic_duration_prediction: bool = True
    speaker_embedding_size: int = Field(default=0, ge=0)
    upsample_initial_channel: int = Field(default=512, gt=0)
    upsample_rates: list[int] = Field(default_factory=lambda: [8, 8, 2, 2])
    upsample_kernel_sizes: list[int] = Field(default_factory=lambda: [16, 16, 4, 4])
    resblock_kernel_sizes: list[int] = Field(default_factory=lambda: [3, 7, 11])
    resblock_dilation_sizes: list[list[int]] = Field(
        default_factory=lambda: [[1, 3, 5], [1, 3, 5], [1, 3, 5]]
    )
    depth_separable_num_layers: int = Field(default=3, gt=0)
    duration_predictor_num_flows: int = Field(default=4, gt=0)
    duration_predictor_filter_channels: int = Field(default=256, gt=0)
    prior_encoder_num_flows: int = Field(default=4, gt=0)
    prior_encoder_num_wavenet_layers: int = Field(default=4, gt=0)
    posterior_encoder_num_wavenet_layers: int = Field(default=16, gt=0)
    wavenet_kernel_size: int = Field(default=5, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is no multiple of num_attention_heads "
                f"{self.num_attention_heads}"
            )
        if self.flow_size % 2:
            raise ValueError(f"flow_size must be even, got {self.flow_size}")
        if len(self.upsample_rates) != len(self.upsample_kernel_sizes):
            raise ValueError("upsample_rates and upsample_kernel_sizes differ in length")
        for rate, kernel in zip(self.upsample_rates, self.upsample_kernel_sizes, strict=True):
            if kernel < rate or (kernel - rate) % 2:
                raise ValueError(
                    f"an upsample kernel of {kernel} does not fit its rate {rate}: it must be at "
                    "least the rate, and differ from it by an even number"
                )
        if len(self.resblock_kernel_sizes) != len(self.resblock_dilation_sizes):
            raise ValueError("resblock_kernel_sizes and resblock_dilation_sizes differ in length")
        if self.upsample_initial_channel % 2 ** len(self.upsample_rates):
            raise ValueError(
                f"upsample_initial_channel {self.upsample_initial_channel} is halved "
                f"{len(self.upsample_rates)} times, which leaves a remainder"
            )
        return self


class DropoutConfig(Section):
    """Dropout rates; where absent the checkpoint's hold, or published ones."""

    hidden_dropout: float | None = Field(default=None, ge=0, lt=1)
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    activation_dropout: float | None = Field(default=None, ge=0, lt=1)
    duration_predictor_dropout: float | None = Field(default=None, ge=0, lt=1)
    wavenet_dropout: float | None = Field(default=None, ge=0, lt=1)

    @property
    def given(self) -> dict[str, float]:
        """The rates that were set."""
        return self.model_dump(exclude_none=True)


class DiscriminatorConfig(Section):
    """The waveform discriminators.

    Attributes:
        width: factor on the published channels.
        periods: of the period discriminators, in samples.
    """

    width: float = Field(default=1.0, gt=0)
    periods: list[int] = Field(default_factory=lambda: list(PERIODS), min_length=1)


class DurationDiscriminatorConfig(Section):
    """VITS2's discriminator of durations.

    Attributes:
        channels: inside.
    """

    channels: int = Field(default=192, gt=0)


class LossWeights(Section):
    """Weights of the terms.

    Attributes:
        mel, duration, kl, adversarial, feature_matching: of the generator. Feature matching
            carries its published factor of 2 already.
        discriminator: of the discriminators' own loss.
        duration_adversarial, duration_discriminator: of both sides of the duration discriminator.
    """

    mel: float = Field(default=45.0, ge=0)
    duration: float = Field(default=1.0, ge=0)
    kl: float = Field(default=1.0, ge=0)
    adversarial: float = Field(default=1.0, ge=0)
    feature_matching: float = Field(default=1.0, ge=0)
    discriminator: float = Field(default=1.0, gt=0)
    duration_adversarial: float = Field(default=1.0, ge=0)
    duration_discriminator: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _something_trains(self) -> Self:
        # Without adversaries duration and KL are all there is; the mel term moves no text.
        if self.duration == 0 and self.kl == 0:
            raise ValueError("duration and kl are both 0: the text encoder would not train")
        return self

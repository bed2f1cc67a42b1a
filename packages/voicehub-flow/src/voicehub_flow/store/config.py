"""Configuration of ``voicehub train`` over feature stores: what presets compose to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from voicehub.models.assets import Asset
from voicehub.trainer.run_config import RunConfig
from voicehub_data.config.base import DataModel
from voicehub_flow.sampling.config import AfterTrainingConfig
from voicehub_flow.vocoders.settings import VocoderSettings

# -- data --------------------------------------------------------------------------------------


class StoreSetConfig(DataModel):
    """One feature store, or the clips of it that a table names.

    Attributes:
        path: the store.
        tsv: table of ``id`` and ``label`` or ``caption``: the clips that are used. May be left out
            where the store has ids.
        join: ``id`` finds a table's clips by their ids; ``row`` takes line i of the table for row
            i of the store, which is all that a store without ids allows.
        kind: ``video`` clips have video features; of ``audio`` ones they are absent; ``auto`` goes
            by what the store has.
        rate: how often each clip comes in an epoch; video sets are usually oversampled.
    """

    path: str
    tsv: str | None = None
    join: Literal["id", "row"] = "id"
    kind: Literal["auto", "video", "audio"] = "auto"
    rate: float = Field(default=1.0, gt=0)

    def assets(self, setting: str) -> list[Asset]:
        """What it names outside the configuration."""
        table = [] if self.tsv is None else [Asset(f"{setting}.tsv", self.tsv, "file")]
        return [Asset(f"{setting}.path", self.path, "file"), *table]


def _set_from(value: Any) -> Any:
    return {"path": str(value)} if isinstance(value, str | Path) else value


def _sets_from(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else [value]


def _named_sets_from(value: Any) -> Any:
    if value is None:
        return {}
    if isinstance(value, str | Path | StoreSetConfig):
        return {"eval": value}
    if isinstance(value, Mapping) and "path" in value:
        return {"eval": value}
    return value


StoreSet = Annotated[StoreSetConfig, BeforeValidator(_set_from)]


class StoreDataConfig(DataModel):
    """Data of a run.

    Attributes:
        train: one store or several that are mixed; the latent statistics are those of the first.
        eval: evaluation sets by name.
        null_text: features of the empty text, (tokens, channels): a ``.safetensors``, ``.npy`` or
            ``.pth`` file. By default the one in the first store that has it.
        verify: compare clips with their checksums: ``rows`` when they are read, ``all`` of them
            before training, or ``none``.
        global_batch_size: clips of one update over all processes. Micro-batches of at most
            ``training.per_device_train_batch_size`` are accumulated to exactly this, or the run
            is refused. None takes what the training arguments make.
        eval_batch_size: clips of an evaluation batch.
        max_drop_fraction: stop when a larger share of a table's clips is not in the store.
    """

    train: Annotated[list[StoreSet], BeforeValidator(_sets_from), Field(min_length=1)]
    eval: Annotated[dict[str, StoreSet], BeforeValidator(_named_sets_from)] = Field(
        default_factory=dict
    )
    null_text: str | None = None
    verify: Literal["rows", "all", "none"] = "rows"
    global_batch_size: int | None = Field(default=None, ge=1)
    eval_batch_size: int = Field(default=16, ge=1)
    max_drop_fraction: float = Field(default=0.0, ge=0, le=1)

    def assets(self, setting: str) -> list[Asset]:
        """What it names outside the configuration."""
        parts = [(f"{setting}.train.{number}", part) for number, part in enumerate(self.train)]
        parts += [(f"{setting}.eval.{name}", part) for name, part in self.eval.items()]
        found = [asset for place, part in parts for asset in part.assets(place)]
        if self.null_text is not None:
            found.append(Asset(f"{setting}.null_text", self.null_text, "file"))
        return found


# -- the model ---------------------------------------------------------------------------------


class MultimodalArchitecture(DataModel):
    """Sizes of the multimodal transformer; its width is ``head_dim * num_heads``.

    Sizes of features that are left at null are those of the first training store.

    Attributes:
        num_heads, head_dim: of attention.
        depth: blocks in all.
        fused_depth: the last so many see the latents alone; the others attend over three streams.
        mlp_ratio, mlp_multiple: the gated feed-forward has 2/3 of ``mlp_ratio`` times the width,
            rounded up to a multiple.
        sync_segment: synchronisation features come in segments of so many, which tell their
            position in it; divides ``sync_frames``.
        latent_frames, latent_dim, clip_frames, clip_dim, sync_frames, sync_dim, text_tokens,
            text_dim: see :class:`voicehub_flow.store.shapes.FeatureShapes`.
    """

    num_heads: int = Field(default=7, ge=1)
    head_dim: int = Field(default=64, ge=2)
    depth: int = Field(default=12, ge=1)
    fused_depth: int = Field(default=8, ge=0)
    mlp_ratio: float = Field(default=4.0, gt=0)
    mlp_multiple: int = Field(default=256, ge=1)
    sync_segment: int = Field(default=8, ge=1)
    latent_frames: int | None = Field(default=None, ge=1)
    latent_dim: int | None = Field(default=None, ge=1)
    clip_frames: int | None = Field(default=None, ge=1)
    clip_dim: int | None = Field(default=None, ge=1)
    sync_frames: int | None = Field(default=None, ge=1)
    sync_dim: int | None = Field(default=None, ge=1)
    text_tokens: int | None = Field(default=None, ge=1)
    text_dim: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even: positions turn pairs")
        if self.fused_depth >= self.depth:
            raise ValueError(
                f"fused_depth {self.fused_depth} must be under depth {self.depth}: at least one "
                "block attends over all streams"
            )
        if self.sync_frames is not None and self.sync_frames % self.sync_segment:
            raise ValueError(
                f"sync_frames {self.sync_frames} is no multiple of sync_segment {self.sync_segment}"
            )
        return self

    @property
    def width(self) -> int:
        """Channels of the streams."""
        return self.num_heads * self.head_dim


class TimeConfig(DataModel):
    """Distribution of t in training: sigmoid(z), z ~ N(mean, scale^2)."""

    mean: float = 0.0
    scale: float = Field(default=1.0, gt=0)


class GenerationConfig(DataModel):
    """How latents are drawn where generation is not told otherwise.

    Attributes:
        guidance_scale: g of ``g v_cond + (1 - g) v_null``; 1 follows the conditions alone.
        steps, method: of the solver.
    """

    guidance_scale: float = Field(default=4.5, ge=0)
    steps: int = Field(default=25, ge=1)
    method: Literal["euler", "midpoint"] = "euler"


class MultimodalModelConfig(DataModel):
    """The model section.

    Attributes:
        architecture: sizes.
        time: where on the path training looks.
        null_condition_probability: of dropping video, and of dropping text, independently.
        min_sigma: what is left of the noise at t = 1.
        generation: defaults of sampling.
        vocoder: speaks what the latents stand for, where they stand for mel frames.
    """

    architecture: MultimodalArchitecture = Field(default_factory=MultimodalArchitecture)
    time: TimeConfig = Field(default_factory=TimeConfig)
    null_condition_probability: float = Field(default=0.1, ge=0, lt=1)
    min_sigma: float = Field(default=0.0, ge=0, lt=1)
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    vocoder: VocoderSettings = Field(default_factory=VocoderSettings)


class StoreRunConfig(RunConfig):
    """A run over feature stores."""

    model: MultimodalModelConfig = Field(default_factory=MultimodalModelConfig)
    data: StoreDataConfig
    after_training: AfterTrainingConfig = Field(default_factory=AfterTrainingConfig)

    @model_validator(mode="after")
    def _settings_have_one_home(self) -> Self:
        """Settings that this recipe would not read are refused."""
        instead = {
            "per_device_eval_batch_size": "data.eval_batch_size",
            "dataloader_drop_last": "data.global_batch_size",
        }
        if self.data.global_batch_size is not None:
            instead["gradient_accumulation_steps"] = "data.global_batch_size"
        self.refuse_unread(instead)
        return self

"""Wrapper of the models on a pretrained encoder."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.tensor_files import read_tensors
from voicehub_hf.encoders import padding_sensitive, unwrapped
from voicehub_hf.identity import checkpoint_identity
from voicehub_hf.lora import add_lora, merge_lora
from voicehub_hf.processors import progress_bars
from voicehub_hf.spec_augment import disable_layer_drop, disable_native_spec_augment
from voicehub_hf.speech_encoders import EncoderParts, load_speech_encoder, read_encoder_parts
from voicehub_hf.truncation import (
    LayerSaving,
    drop_top_layers,
    layer_savings,
    normalises_at_end,
)
from voicehub_xvector.chunks import plan_pieces
from voicehub_xvector.class_map import load_classes
from voicehub_xvector.config import EncoderLoraConfig, EncoderModelConfig
from voicehub_xvector.embedder import WEIGHTS_FILE, XVectorModel
from voicehub_xvector.front_ends.encoder import EncoderFrontEnd
from voicehub_xvector.fuser import Fuser
from voicehub_xvector.heads import build_head
from voicehub_xvector.losses import build_loss
from voicehub_xvector.network import EncoderNetwork
from voicehub_xvector.train_modes import (
    LORA_MODES,
    Layout,
    encoder_without_grad,
    stops_before_embedding,
)
from voicehub_xvector.weights import load_into

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Audio = NDArray[np.float32]

logger = logging.getLogger(__name__)

#: Where an artifact keeps the encoder as transformers reads it, and adapters as peft does.
ENCODER_FOLDER, LORA_FOLDER = "encoder", "lora"


class EncoderXVector(XVectorModel):
    """An artifact of ours, or ``from_config`` over a checkpoint.

    Args:
        name_or_path: directory of an artifact, or the checkpoint of ``from_config``.
    """

    config: EncoderModelConfig

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        super().__init__(name_or_path, **arguments)
        self.savings: list[LayerSaving] = []
        self._source = self.name_or_path
        self._revision, self._local = self.revision, False
        self._weights: Path | None = None
        self._parts: EncoderParts | None = None
        self._front_end: EncoderFrontEnd | None = None
        #: Whether the encoder at ``_source`` ends where the fuser needs it to.
        self._cut = False
        directory = Path(self.name_or_path)
        if directory.is_dir() and is_artifact(directory):
            artifact = read_artifact(directory, self.model_type)
            self.config = EncoderModelConfig.model_validate(artifact.model["config"])
            self.classes = load_classes(directory)
            self._weights = directory / WEIGHTS_FILE
            self._read_encoder_of(directory)

    @classmethod
    def from_config(
        cls,
        config: EncoderModelConfig,
        classes: Sequence[str],
        *,
        model_type: str,
        init_from: Path | None = None,
        device: str = "cpu",
    ) -> EncoderXVector:
        """Build a lazy wrapper with a new head over a checkpoint.

        Args:
            config: model section of a run.
            classes: speakers by label.
            model_type: of ours.
            init_from: an artifact whose encoder is taken; ``config.path`` is not read then.
            device: where weights load.
        """
        model = cls(config.path, model_type=model_type, revision=config.revision, device=device)
        model.config = config
        model.classes = list(classes)
        model._local = config.local_files_only
        if init_from is not None:
            model._read_encoder_of(init_from)
        return model

    def _read_encoder_of(self, artifact: Path) -> None:
        self._source, self._revision, self._local = str(artifact / ENCODER_FOLDER), None, True
        self._cut = True

    # -- what is known before weights are there --------------------------------------------------

    @property
    def encoder_type(self) -> str:
        """``model_type`` of transformers."""
        return self.model_type.removeprefix("xvector-")

    @property
    def parts(self) -> EncoderParts:
        """Configuration and feature extractor of the checkpoint; read when first asked for."""
        if self._parts is None:
            self._parts = read_encoder_parts(
                self._source,
                model_type=self.encoder_type,
                revision=self._revision,
                local_files_only=self._local or None,
            )
        return self._parts

    @property
    def front_end(self) -> EncoderFrontEnd:  # type: ignore[override]
        """Made from the checkpoint's feature extractor."""
        if self._front_end is None:
            self._front_end = EncoderFrontEnd(self.parts)
        return self._front_end

    @property
    def fused_size(self) -> int:
        """Values of a fused frame, which SpecAugment's masks span."""
        return self.config.fuser.size or int(self.parts.config.hidden_size)

    @property
    def layout(self) -> Layout:
        return Layout(self.parts.encoder.front_end, f"head.{self.network.head.embedding_path}")

    def identity(self) -> dict[str, Any]:
        """Which checkpoint it starts from, exactly, for the run's record."""
        return checkpoint_identity(self._source, self.parts.config)

    # -- loading ---------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        parts, fusing = self.parts, self.config.fuser
        encoder = load_speech_encoder(
            self._source,
            model_type=self.encoder_type,
            revision=self._revision,
            local_files_only=self._local or None,
            config_overrides=self.config.dropouts,
            final_norm=not (self._cut and self._ends_early()),
        )
        self.savings = layer_savings(encoder, parts.encoder)
        layers = len(encoder.get_submodule(parts.encoder.layers))
        stop = layers if fusing.stop is None else fusing.stop
        drop_top_layers(encoder, parts.encoder, stop)
        if fusing.start > stop:
            raise ConfigurationError(
                f"model.fuser.start is {fusing.start}; the highest hidden state is {stop}."
            )
        disable_native_spec_augment(encoder)
        disable_layer_drop(encoder)
        count = 1 if fusing.kind == "last" else stop + 1 - fusing.start
        fuser = Fuser(fusing, count, int(encoder.config.hidden_size))
        head = build_head(self.config.head, fuser.output_size)
        loss = build_loss(self.config.loss, head.embedding_size, len(self.classes))
        network = EncoderNetwork(
            encoder,
            parts.encoder,
            fuser,
            head,
            loss,
            start=fusing.start,
            runs_apart=self.config.exact_padding and padding_sensitive(encoder.config),
        )
        if self._weights is not None:
            load_into(network, read_tensors(self._weights), self._weights)
        self.model = network.to(self.device)
        if self.is_training_load:
            self.model.train()

    def _ends_early(self) -> bool:
        """Whether layers were dropped from an encoder whose last state alone is normalised."""
        return self.config.fuser.stop is not None and normalises_at_end(
            self.parts.config, self.parts.encoder
        )

    def _prepare_for_training(self) -> None:
        network, mode = self.model, self.config.train_mode
        natural = {id(p) for p in network.parameters() if p.requires_grad}
        if mode in LORA_MODES:
            lora = self.config.lora or EncoderLoraConfig()
            network.encoder = add_lora(
                network.encoder,
                lora.rank,
                lora.alpha,
                lora.dropout,
                lora.target_modules,
                train_head=False,
            )
        logger.info("%s", savings_text(self.savings, self.config.fuser.stop))
        network.without_encoder_grad = encoder_without_grad(mode)
        network.head.without_trunk_grad = stops_before_embedding(mode)
        self._apply_train_mode(natural)

    # -- embeddings of long recordings -----------------------------------------------------------

    def _embed(self, waves: Sequence[Audio]) -> Tensor:
        limit = round(self.config.chunk_seconds * self.sample_rate)
        short = [i for i, wave in enumerate(waves) if len(wave) <= limit]
        rows: dict[int, Tensor] = {}
        if short:
            embedded = super()._embed([waves[i] for i in short])
            rows.update(zip(short, embedded, strict=True))
        for i, wave in enumerate(waves):
            if i not in rows:
                rows[i] = self._embed_in_pieces(wave)
        return torch.stack([rows[i] for i in range(len(waves))])

    def _embed_in_pieces(self, wave: Audio) -> Tensor:
        """Run the encoder on pieces with their surroundings; join its frames; then go on."""
        network: Any = self.network
        front_end = self.front_end
        pieces = plan_pieces(
            len(wave),
            hop=front_end.hop_samples,
            piece=round(self.config.chunk_seconds * self.sample_rate),
            context=round(self.config.context_seconds * self.sample_rate),
            limit=front_end.maximum_samples,
        )
        joined: list[list[Tensor]] = []
        for piece in pieces:
            prepared = front_end.prepare(wave[piece.start : piece.stop])
            inputs = front_end.batch([prepared])
            moved = {key: value.to(self.running_device) for key, value in inputs.items()}
            states, frames = network.hidden_states(moved[front_end.input_name], moved["lengths"])
            kept = slice(piece.skip, int(frames) if piece.keep is None else piece.skip + piece.keep)
            joined.append([state[:, kept] for state in states])
        states = [torch.cat(parts, 1) for parts in zip(*joined, strict=True)]
        total = torch.tensor([states[0].shape[1]], device=states[0].device)
        embedded: Tensor = network.embed_fused(network.fuser(states, total), total)[0]
        return embedded

    # -- saving ----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        super()._save_family_files(directory)
        encoder: Any = self.network.encoder
        adapted = hasattr(encoder, "merge_and_unload")
        if adapted:
            encoder.save_pretrained(directory / LORA_FOLDER)
            encoder = merge_lora(copy.deepcopy(encoder))
        with progress_bars(shown=False):
            unwrapped(encoder).save_pretrained(directory / ENCODER_FOLDER)  # type: ignore[operator]
            self.parts.feature_extractor.save_pretrained(directory / ENCODER_FOLDER)

    def artifact_config(self) -> dict[str, Any]:
        config = super().artifact_config()
        config["started_from"] = config["config"]["path"]
        return config


def savings_text(savings: Sequence[LayerSaving], stop: int | None) -> str:
    """Say what each fewer fused layer saves of an encoder, from the highest hidden state down."""
    whole = savings[0]
    kept = whole.stop if stop is None else stop
    size = next(row.parameters for row in savings if row.stop == kept)
    parts = [f"{row.stop}: {row.share_saved:.0%}" for row in savings if row.stop < whole.stop]
    return (
        f"Encoder: {kept} of {whole.stop} layers, {size:,} parameters. Parameters saved by "
        f"model.fuser.stop = {', '.join(parts)}; layers above it do not run."
    )

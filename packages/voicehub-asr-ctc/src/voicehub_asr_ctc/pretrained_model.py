"""Wrapper of the CTC classes of transformers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub_asr_ctc.config import CheckpointTokenizerConfig, PretrainedModelConfig
from voicehub_asr_ctc.front_ends.pretrained import PretrainedFrontEnd
from voicehub_asr_ctc.recogniser import CTCRecogniser
from voicehub_asr_ctc.tokenizers import CTCTokenizer, load_tokenizer, save_tokenizer
from voicehub_asr_ctc.tokenizers.pretrained import PretrainedTokenizer
from voicehub_hf.encoders import base_encoder, padding_sensitive
from voicehub_hf.export import export_ctc
from voicehub_hf.freezing import encoder_parameters, freeze_encoder, freeze_feature_encoder
from voicehub_hf.identity import checkpoint_identity
from voicehub_hf.loading import CheckpointParts, load_checkpoint, read_checkpoint_parts
from voicehub_hf.lora import add_lora
from voicehub_hf.processors import build_processor
from voicehub_hf.spec_augment import (
    HiddenStateMasking,
    disable_layer_drop,
    disable_native_spec_augment,
)

if TYPE_CHECKING:
    from voicehub.models.initial import InitialWeights

#: Where an artifact keeps what plain transformers loads, and low-rank adapters apart.
TRANSFORMERS_FOLDER, LORA_FOLDER = "transformers", "lora"


class TransformersCTC(CTCRecogniser):
    """A CTC class of transformers: a checkpoint, an artifact of ours, or ``from_config``.

    Args:
        name_or_path: local directory or Hub id.
    """

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        local_files_only = bool(arguments.pop("local_files_only", False))
        super().__init__(name_or_path, **arguments)
        self.config: PretrainedModelConfig | None = None
        self.uses_masks = False
        self.masking: HiddenStateMasking | None = None
        self.new_parameters: tuple[str, ...] = ()
        self.seed = 0
        self._goes_on = False  # from an artifact, whose output layer fits its tokenizer
        self._local = local_files_only
        self._parts: CheckpointParts | None = None
        self._tokenizer: CTCTokenizer | None = None
        directory = Path(self.name_or_path)
        self._source = self.name_or_path
        if directory.is_dir() and is_artifact(directory):
            artifact = read_artifact(directory)
            self._source = str(directory / TRANSFORMERS_FOLDER)
            self._tokenizer = load_tokenizer(directory)
            self.metric_normalizer = str(artifact.model.get("metric_normalizer", "basic"))

    @classmethod
    def from_config(
        cls,
        config: PretrainedModelConfig,
        tokenizer: CTCTokenizer | None,
        *,
        model_type: str,
        metric_normalizer: str = "basic",
        uses_masks: bool = False,
        seed: int = 0,
        device: str = "cpu",
        init_from: Path | None = None,
    ) -> TransformersCTC:
        """Build a lazy wrapper to fine-tune a checkpoint.

        Args:
            config: model section of a run.
            tokenizer: None keeps the checkpoint's, and its output layer.
            model_type: of ours.
            metric_normalizer: applied before errors are counted.
            uses_masks: batches will bring masks over hidden states.
            seed: of a new output layer.
            device: where weights load.
            init_from: an artifact that weights, tokenizer and output layer come from; the
                checkpoint itself is not read then.
        """
        model = cls(
            config.path,
            model_type=model_type,
            revision=config.revision,
            device=device,
            local_files_only=config.local_files_only,
        )
        model.config = config
        model.metric_normalizer = metric_normalizer
        model.uses_masks = uses_masks
        model.seed = seed
        if init_from is not None:
            model._source = str(init_from / TRANSFORMERS_FOLDER)
            model._tokenizer = load_tokenizer(init_from)
            model._goes_on = True
        elif not isinstance(config.tokenizer, CheckpointTokenizerConfig):
            model._tokenizer = tokenizer
        return model

    # -- what is known before weights are there ---------------------------------------------

    @property
    def parts(self) -> CheckpointParts:
        """Configuration and processor of the checkpoint; read when first asked for."""
        if self._parts is None:
            self._parts = read_checkpoint_parts(
                self._source,
                model_type=self.model_type,
                revision=self.revision,
                local_files_only=self._local or None,
            )
        return self._parts

    @property
    def front_end(self) -> PretrainedFrontEnd:  # type: ignore[override]
        """Made from the checkpoint's feature extractor."""
        if self._front_end is None:
            self._front_end = PretrainedFrontEnd(self.parts.config, self.parts.feature_extractor)
        return self._front_end

    _front_end: PretrainedFrontEnd | None = None

    @property
    def tokenizer(self) -> CTCTokenizer:  # type: ignore[override]
        """The given one, or the checkpoint's."""
        if self._tokenizer is None:
            parts = self.parts
            if parts.tokenizer is None:
                raise ConfigurationError(
                    f"{self._source} comes without a tokenizer; build one from the training text "
                    "(model.tokenizer.kind=characters)."
                )
            self._tokenizer = PretrainedTokenizer(
                parts.tokenizer,
                num_outputs=parts.config.vocab_size,
                blank_id=parts.config.pad_token_id,
            )
        return self._tokenizer

    @property
    def runs_apart(self) -> bool:  # type: ignore[override]
        """Whether outputs would depend on padding, and exactness was asked for."""
        exact = self.config is None or self.config.exact_padding
        return exact and padding_sensitive(self.parts.config)

    def identity(self) -> dict[str, Any]:
        """Which checkpoint this is, exactly: for a run's record."""
        return checkpoint_identity(self._source, self.parts.config)

    def artifact_config(self) -> dict[str, Any]:
        settings = None if self.config is None else self.config.model_dump(mode="json")
        return {
            "architecture": self.parts.encoder.architecture,
            "started_from": None if settings is None else settings.pop("path"),
            "settings": settings,
            "metric_normalizer": self.metric_normalizer,
            "tokenizer_sha256": self.tokenizer.fingerprint(),
        }

    # -- loading ------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        keeps = isinstance(self.tokenizer, PretrainedTokenizer) or self._goes_on
        new_head = self.config is not None and not keeps
        sizes: dict[str, Any] = {}
        if new_head:
            sizes = {"vocab_size": len(self.tokenizer), "pad_token_id": self.tokenizer.blank_id}
        loaded = load_checkpoint(
            self._source,
            revision=self.revision,
            local_files_only=self._local or None,
            model_type=self.model_type,
            config_overrides=None if self.config is None else self.config.dropouts,
            seed=self.seed,
            **sizes,
        )
        model = loaded.model
        self.new_parameters = loaded.new_parameters
        self.model = model.to(self.device)
        if self.is_training_load:
            self.model.train()

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """``_load_weights`` has read the artifact: low-rank adapters are merged in it."""
        count = len(self.tokenizer)
        return [f"Tokenizer and output layer are those of {weights.directory}: {count} tokens."]

    def _prepare_for_training(self) -> None:
        config = self.config or PretrainedModelConfig(
            path=self.name_or_path, tokenizer=CheckpointTokenizerConfig()
        )
        model = self.model
        disable_native_spec_augment(model)
        disable_layer_drop(model)
        if config.lora is not None:
            lora = config.lora
            model = add_lora(model, lora.rank, lora.alpha, lora.dropout, lora.target_modules)
        elif config.freeze == "encoder":
            freeze_encoder(model)
        elif config.freeze == "feature-encoder":
            freeze_feature_encoder(model)
        if self.uses_masks:
            frozen = config.lora is not None or config.freeze == "encoder"
            self.masking = HiddenStateMasking(model, train_mask_vector=not frozen)
        self.model = model

    def encoder_named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Trainable parameters below the output layer."""
        return [(n, p) for n, p in encoder_parameters(self.network) if p.requires_grad]

    def encoder(self) -> nn.Module:
        """The module below the output layer."""
        return base_encoder(self.network)  # type: ignore[no-any-return]

    # -- saving -------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        save_tokenizer(self.tokenizer, directory)
        self._export(directory / TRANSFORMERS_FOLDER)
        if hasattr(self.network, "peft_config"):
            self.model.save_pretrained(directory / LORA_FOLDER)

    def export_native(self, directory: Path) -> bool:
        """Write what plain transformers loads; linked where the artifact beside it holds it."""
        beside = directory.parent / TRANSFORMERS_FOLDER
        if not beside.is_dir():
            self._export(directory)
            return True
        for path in sorted(beside.iterdir()):
            target = directory / path.name
            try:
                os.link(path, target)
            except OSError:  # another file system, or one without links
                shutil.copy2(path, target)
        return True

    def _export(self, directory: Path) -> None:
        parts = self.parts
        tokenizer = self.tokenizer.to_transformers(parts.encoder.model_type)
        processor = build_processor(parts.encoder.model_type, parts.feature_extractor, tokenizer)
        export_ctc(self.network, processor, directory)

"""Wrapper of the models on log-mel features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.models.artifact import read_artifact
from voicehub.models.tensor_files import read_tensors
from voicehub_xvector.class_map import load_classes
from voicehub_xvector.config import LogMelModelConfig
from voicehub_xvector.embedder import RANDOM_WEIGHTS, WEIGHTS_FILE, XVectorModel
from voicehub_xvector.front_ends import build_features
from voicehub_xvector.heads import build_head
from voicehub_xvector.losses import build_loss
from voicehub_xvector.network import LogMelNetwork
from voicehub_xvector.train_modes import Layout, stops_before_embedding
from voicehub_xvector.weights import load_into


class LogMelXVector(XVectorModel):
    """A model trained from scratch: an artifact's directory, or ``from_config``.

    Args:
        name_or_path: directory of an artifact of this model type.
    """

    default_model_type = "xvector-logmel"
    config: LogMelModelConfig

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        super().__init__(name_or_path, **arguments)
        self._weights: Path | None = None
        if self.name_or_path != RANDOM_WEIGHTS:
            artifact = read_artifact(self.name_or_path, self.model_type)
            config = LogMelModelConfig.model_validate(artifact.model["config"])
            self._configure(config, load_classes(artifact.directory))
            self._weights = artifact.directory / WEIGHTS_FILE

    @classmethod
    def from_config(
        cls, config: LogMelModelConfig, classes: Sequence[str], *, device: str = "cpu"
    ) -> LogMelXVector:
        """Build a lazy wrapper with random weights.

        Args:
            config: model section of a run.
            classes: speakers by label.
            device: where weights load.
        """
        model = cls(RANDOM_WEIGHTS, device=device)
        model._configure(config, classes)
        return model

    def _configure(self, config: LogMelModelConfig, classes: Sequence[str]) -> None:
        self.config = config
        self.classes = list(classes)
        self.front_end = build_features(config.features)

    @property
    def layout(self) -> Layout:
        return Layout((), f"head.{self.network.head.embedding_path}")

    def _load_weights(self) -> None:
        head = build_head(self.config.head, self.config.features.n_mels)
        loss = build_loss(self.config.loss, head.embedding_size, len(self.classes))
        network = LogMelNetwork(head, loss)
        if self._weights is not None:
            load_into(network, read_tensors(self._weights), self._weights)
        self.model = network.to(self.device)
        if not self.is_training_load:
            self.model.eval()

    def _prepare_for_training(self) -> None:
        self.model.head.without_trunk_grad = stops_before_embedding(self.config.train_mode)
        self._apply_train_mode({id(p) for p in self.model.parameters() if p.requires_grad})

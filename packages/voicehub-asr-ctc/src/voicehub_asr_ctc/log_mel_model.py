"""Wrapper of the log-mel recogniser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voicehub.models.artifact import read_artifact
from voicehub.models.tensor_files import read_tensors, require_same_tensors, write_tensors
from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.front_ends.log_mel import LogMelFrontEnd
from voicehub_asr_ctc.network import LogMelNetwork, NetworkConfig
from voicehub_asr_ctc.recogniser import CTCRecogniser
from voicehub_asr_ctc.tokenizers import CTCTokenizer, load_tokenizer, save_tokenizer

WEIGHTS_FILE = "model.safetensors"
RANDOM_WEIGHTS = "(random weights)"


class LogMelCTC(CTCRecogniser):
    """A recogniser trained from scratch: an artifact's directory, or ``from_config``.

    Args:
        name_or_path: directory of an artifact of this model type.
    """

    default_model_type = "ctc-logmel"

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        super().__init__(name_or_path, **arguments)
        self._weights: Path | None = None
        if self.name_or_path != RANDOM_WEIGHTS:
            artifact = read_artifact(self.name_or_path, self.model_type)
            self._configure(
                LogMelModelConfig.model_validate(artifact.model["config"]),
                load_tokenizer(artifact.directory),
                str(artifact.model.get("metric_normalizer", "basic")),
            )
            self._weights = artifact.directory / WEIGHTS_FILE

    @classmethod
    def from_config(
        cls,
        config: LogMelModelConfig,
        tokenizer: CTCTokenizer,
        *,
        metric_normalizer: str = "basic",
        device: str = "cpu",
    ) -> LogMelCTC:
        """Build a lazy wrapper with random weights."""
        model = cls(RANDOM_WEIGHTS, device=device)
        model._configure(config, tokenizer, metric_normalizer)
        return model

    def _configure(
        self, config: LogMelModelConfig, tokenizer: CTCTokenizer, metric_normalizer: str
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.front_end = LogMelFrontEnd(config)
        self.metric_normalizer = metric_normalizer

    @property
    def network_config(self) -> NetworkConfig:
        """Sizes of the network."""
        config = self.config
        return NetworkConfig(
            n_mels=config.n_mels,
            num_tokens=len(self.tokenizer),
            hidden_size=config.hidden_size,
            num_blocks=config.num_blocks,
            kernel_size=config.kernel_size,
            attention_every=config.attention_every,
            num_heads=config.num_heads,
            dropout=config.dropout,
            intermediate=config.intermediate_weight > 0,
        )

    @property
    def encoder_size(self) -> int:
        """Width of what ``network.encode`` returns: with ``front_end``, all that a model built on
        this encoder needs to know."""
        return self.config.hidden_size

    def artifact_config(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "network": self.network_config.to_dict(),
            "metric_normalizer": self.metric_normalizer,
            "tokenizer_sha256": self.tokenizer.fingerprint(),
        }

    def _load_weights(self) -> None:
        network = LogMelNetwork(self.network_config)
        if self._weights is not None:
            state = read_tensors(self._weights)
            require_same_tensors(network.state_dict(), state, self._weights)
            network.load_state_dict(state)
        self.model = network.to(self.device)
        if not self.is_training_load:
            self.model.eval()

    def _save_family_files(self, directory: Path) -> None:
        write_tensors(self.network.state_dict(), directory / WEIGHTS_FILE)
        save_tokenizer(self.tokenizer, directory)

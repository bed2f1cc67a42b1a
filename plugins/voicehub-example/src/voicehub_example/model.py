"""The network, and the wrapper that loads, saves and uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.lifecycle import PreTrainedSpeechModel

WEIGHTS = "model.safetensors"
SETTINGS = ("bands", "channels", "layers", "dropout")


class MelDenoiser(nn.Module):
    """Residual convolutions over time that predict the noise in a log-mel spectrogram."""

    def __init__(self, bands: int, channels: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.enter = nn.Linear(bands, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(layers))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(channels, channels, 5, padding=2) for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.leave = nn.Linear(channels, bands)

    def forward(self, noisy: Tensor, mask: Tensor, clean: Tensor | None = None) -> dict[str, Any]:
        """Return ``predictions``, and with ``clean`` the ``loss`` and its ``num_items``.

        Args:
            noisy: (batch, frames, bands).
            mask: Valid frames, bool (batch, frames).
            clean: The target, as ``noisy``.
        """
        padding = ~mask[:, :, None]
        hidden = self.enter(noisy)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            # Zero before every convolution: it must not see beyond the end of a clip.
            inputs = norm(hidden).masked_fill(padding, 0.0)
            outputs = convolution(inputs.transpose(1, 2)).transpose(1, 2)
            hidden = hidden + self.dropout(nn.functional.gelu(outputs))
        predictions = (noisy - self.leave(hidden)).masked_fill(padding, 0.0)
        if clean is None:
            return {"predictions": predictions}
        errors = (predictions - clean).masked_fill(padding, 0.0).square().mean(-1)
        frames = mask.sum()
        return {"loss": errors.sum() / frames, "num_items": frames, "predictions": predictions}


class DenoiserModel(PreTrainedSpeechModel):
    """A denoiser from random weights (options ``bands``, ...), or from an exported directory."""

    default_model_type = "example-denoiser"
    destructive_inference_load = False

    def _load_weights(self) -> None:
        directory = Path(self.name_or_path)
        exported = directory.is_dir() and is_artifact(directory)
        settings = read_artifact(directory).model if exported else self.options
        self.settings = {name: settings[name] for name in SETTINGS}
        self.model = MelDenoiser(**self.settings)
        if exported:
            self.model.load_state_dict(load_file(directory / WEIGHTS))
        self.model.to(self.device)

    def artifact_config(self) -> dict[str, Any]:
        """Return what rebuilds the network."""
        return dict(self.settings)

    def _save_family_files(self, directory: Path) -> None:
        weights = {name: value.contiguous() for name, value in self.model.state_dict().items()}
        save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})

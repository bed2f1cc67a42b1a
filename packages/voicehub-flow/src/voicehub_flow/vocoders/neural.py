"""A vocoder that is a network: moves frames to it, and calls it without gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from voicehub_flow.vocoders.base import Vocoder


class NeuralVocoder(Vocoder):
    """Speaks with a module that takes (batch, n_mels, frames) and gives (batch, samples).

    Args:
        name: as settings name it.
        network: in eval mode.
        known: see ``Vocoder``.
        described: its directory, for manifests.
        device: where the network goes.
        log_scale: what natural logarithms are multiplied with: 1 / ln 10 for networks that were
            trained on common ones.
    """

    def __init__(
        self,
        name: str,
        network: nn.Module,
        known: Mapping[str, Any],
        described: Mapping[str, Any],
        *,
        device: str = "cpu",
        log_scale: float = 1.0,
    ) -> None:
        self.name = name  # type: ignore[misc]  # of the instance: one class serves several
        self.network = network.to(device)
        self.known = dict(known)
        self.sampling_rate = int(known["sample_rate"])
        self._described = dict(described)
        self._log_scale = log_scale

    def _speak(self, log_mel: Tensor) -> Tensor:
        place = next(self.network.parameters()).device
        frames = (log_mel * self._log_scale).T[None].to(place)
        with torch.no_grad(), torch.autocast(place.type, enabled=False):
            wave: Tensor = self.network(frames)
        return wave[0].to(log_mel.device)

    def describe(self) -> dict[str, Any]:
        """Its name, directory and weights' digest, and what could not be compared."""
        return {"name": self.name, **self._described, "unstated": list(self.unstated)}

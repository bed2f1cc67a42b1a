"""Video features of CLIP's vision half, frame by frame."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from voicehub_data.config.base import DataModel
from voicehub_flow.features.base import VideoExtractor
from voicehub_flow.features.pretrained import digest_of_model, load_frozen, require_directory
from voicehub_flow.features.video_frames import resized

#: Mean and deviation of CLIP's pixels.
_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_AT_ONCE = 16


class ClipVisionSettings(DataModel):
    """Options.

    Attributes:
        fps: frames a second.
    """

    fps: float = Field(default=8.0, gt=0)


class ClipVision(VideoExtractor):
    """Image embeddings of CLIP (Radford et al. 2021), one a frame.

    Args:
        model: in evaluation mode.
        settings: options.
        source: its directory.
    """

    name = "clip-vision"

    def __init__(self, model: Any, settings: ClipVisionSettings, source: str) -> None:
        self.model, self.config, self.source = model, settings, source
        self.fps, self.size = settings.fps, int(model.config.image_size)
        self.channels = int(model.config.projection_dim)
        self.options = settings.model_dump()

    def encode(self, frames: np.ndarray[Any, Any]) -> Tensor:
        parts = []
        for start in range(0, len(frames), _AT_ONCE):
            pixels = resized(frames[start : start + _AT_ONCE], self.size, self.size)
            scaled = torch.from_numpy(pixels).float().permute(0, 3, 1, 2) / 255.0
            mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (_MEAN, _STD))
            with torch.no_grad():
                found = self.model(pixel_values=((scaled - mean) / std).to(self.model.device))
            parts.append(found.image_embeds.float().cpu())
        return torch.cat(parts) if parts else torch.zeros(0, self.channels)

    def settings(self) -> dict[str, Any]:
        return {"fps": self.fps, "channels": self.channels, "size": self.size}

    def weights_digest(self) -> str:
        return digest_of_model(self.source, self.model.config)


def build(directory: Path | None, settings: Mapping[str, Any]) -> ClipVision:
    """For the registry."""
    import transformers

    found = require_directory(ClipVision.name, directory)
    model = load_frozen(transformers.CLIPVisionModelWithProjection, found)
    return ClipVision(model, ClipVisionSettings.load(settings), str(found))

"""How many steps and channels each kind of feature has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from voicehub_flow.store import layout


@dataclass(frozen=True)
class FeatureShapes:
    """Sizes of one clip.

    Attributes:
        latent_frames, latent_dim: frames of a whole clip, and channels.
        clip_frames, clip_dim: of the video's frames.
        sync_frames, sync_dim: of what is aligned with the sound.
        text_tokens, text_dim: of the text.
    """

    latent_frames: int
    latent_dim: int
    clip_frames: int
    clip_dim: int
    sync_frames: int
    sync_dim: int
    text_tokens: int
    text_dim: int

    def rows(self) -> dict[str, tuple[int | None, ...]]:
        """Shape of a clip's tensor, by its name in the store."""
        return {
            layout.MEAN: (self.latent_frames, self.latent_dim),
            layout.STD: (self.latent_frames, self.latent_dim),
            layout.TEXT: (self.text_tokens, self.text_dim),
            layout.CLIP: (self.clip_frames, self.clip_dim),
            layout.SYNC: (self.sync_frames, self.sync_dim),
        }

    def to_dict(self) -> dict[str, int]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureShapes:
        """What ``to_dict`` returned."""
        return cls(**{name: int(value) for name, value in values.items()})

"""Video features that need no download: what a frame looks like from afar, and what moves in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from voicehub_data.config.base import DataModel
from voicehub_flow.features.base import VideoExtractor
from voicehub_flow.features.registry import read_settings, write_settings
from voicehub_flow.features.video_frames import resized


class FrameGridSettings(DataModel):
    """Options.

    Attributes:
        fps: frames a second.
        rows, columns: cells that a frame is averaged to.
    """

    fps: float = Field(default=8.0, gt=0)
    rows: int = Field(default=4, ge=1)
    columns: int = Field(default=4, ge=1)


class MotionGridSettings(FrameGridSettings):
    """The same options; motion is looked at more often."""

    fps: float = Field(default=24.0, gt=0)


class FrameGrid(VideoExtractor):
    """Mean colour of every cell, in [-1, 1]."""

    name = "frame-grid"
    colours: ClassVar[int] = 3

    def __init__(self, settings: FrameGridSettings, source: str = "(built in)") -> None:
        self.config, self.source, self.fps = settings, source, settings.fps
        self.channels = settings.rows * settings.columns * self.colours

    def encode(self, frames: np.ndarray[Any, Any]) -> Tensor:
        return self._cells(frames).flatten(1)

    def _cells(self, frames: np.ndarray[Any, Any]) -> Tensor:
        small = resized(frames, self.config.rows, self.config.columns)
        return torch.from_numpy(small).float() / 127.5 - 1.0

    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    def save(self, directory: Path) -> bool:
        write_settings(directory, self.name, self.settings())
        return True


class MotionGrid(FrameGrid):
    """Change of each cell's brightness since the frame before; zero in the first."""

    name = "motion-grid"
    colours = 1

    def encode(self, frames: np.ndarray[Any, Any]) -> Tensor:
        brightness = self._cells(frames).mean(-1).flatten(1)
        return torch.diff(brightness, dim=0, prepend=brightness[:1])


def build_frames(directory: Path | None, settings: Mapping[str, Any]) -> FrameGrid:
    """For the registry."""
    given, source = _given(FrameGrid.name, directory, settings)
    return FrameGrid(FrameGridSettings.load(given), source)


def build_motion(directory: Path | None, settings: Mapping[str, Any]) -> MotionGrid:
    """For the registry."""
    given, source = _given(MotionGrid.name, directory, settings)
    return MotionGrid(MotionGridSettings.load(given), source)


def _given(
    name: str, directory: Path | None, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    if directory is None:
        return dict(settings), "(built in)"
    return {**read_settings(directory, name), **settings}, str(directory)

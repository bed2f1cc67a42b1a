"""From a row of a manifest to the tensors of its clips, or to the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_data.audio import audio_info, load_audio
from voicehub_data.manifest import ManifestRow
from voicehub_flow.features.base import (
    AudioExtractor,
    Extractor,
    Kind,
    TextExtractor,
    VideoExtractor,
)
from voicehub_flow.features.settings import ExtractionSettings
from voicehub_flow.features.video_frames import Video
from voicehub_flow.store import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Columns of a manifest's row that name its video.
VIDEO_COLUMN, FPS_COLUMN = "video", "video_fps"


class Rejected(Exception):
    """A recording, or a part of it, that gives no clip.

    Attributes:
        reason: one word, for counting.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Clip(NamedTuple):
    """One clip before its text is encoded."""

    id: str
    text: str
    seconds: float
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class ClipMaker:
    """Reads recordings and runs the extractors of audio and video.

    Attributes:
        extractors: by kind; ``audio`` and ``text`` are always there.
        settings: how recordings are cut.
    """

    extractors: dict[Kind, Extractor]
    settings: ExtractionSettings

    @property
    def audio(self) -> AudioExtractor:
        """Of the latents."""
        return cast("AudioExtractor", self.extractors["audio"])

    @property
    def text(self) -> TextExtractor:
        """Of the texts."""
        return cast("TextExtractor", self.extractors["text"])

    @property
    def samples(self) -> int:
        """Of a whole clip."""
        return round(self.settings.seconds * self.audio.sample_rate)

    def clips(self, row: ManifestRow) -> Iterator[Clip | tuple[str, str]]:
        """The clips of a row; in place of one that is rejected, its reason and a message."""
        try:
            audio = self._recording(row)
            video = self._video(row)
        except Rejected as error:
            yield error.reason, str(error)
            return
        several = self.settings.max_segments > 1
        count = max(1, min(self.settings.max_segments, len(audio) // self.samples))
        for number in range(count):
            name = f"{row.id}#{number}" if several else row.id
            try:
                yield self._clip(row, name, audio, number, video)
            except Rejected as error:
                yield error.reason, str(error)

    def _recording(self, row: ManifestRow) -> NDArray[np.float32]:
        settings, rate = self.settings, self.audio.sample_rate
        try:
            seconds = row.duration
            if seconds is None:
                info = audio_info(row.audio_filepath)
                seconds = info.duration - row.offset if info.frames >= 0 else None
            most = settings.seconds * settings.max_segments
            wanted = None if seconds is None else min(seconds, most)
            audio = load_audio(
                row.audio_filepath, sample_rate=rate, offset=row.offset, duration=wanted
            )
        except DataError as error:
            raise Rejected("unreadable", str(error)) from error
        have = len(audio) / rate if seconds is None or wanted == seconds else seconds
        # A sample may be lost in rounding.
        if have + 1.5 / rate < settings.least_seconds:
            raise Rejected(
                "too-short",
                f"{have:.3f} s; at least {settings.least_seconds:g} s are asked for",
            )
        missing = self.samples - len(audio)
        if settings.short == "reject" and 0 < missing <= 2:
            audio = np.pad(audio, (0, missing))
        return audio

    def _clip(
        self,
        row: ManifestRow,
        name: str,
        audio: NDArray[np.float32],
        number: int,
        video: Video | None,
    ) -> Clip:
        settings = self.settings
        part = audio[number * self.samples : (number + 1) * self.samples]
        peak = float(np.abs(part).max()) if len(part) else 0.0
        if peak < settings.silence:
            raise Rejected("silent", f"peak {peak:.2g}, under {settings.silence:g}")
        if settings.gain is not None and peak > 0:
            part = part * np.float32(settings.gain / peak)
        valid = self.audio.frames(len(part))
        padded = np.pad(part, (0, self.samples - len(part)))
        mean, std = self.audio.encode(torch.from_numpy(padded))
        tensors = {layout.MEAN: mean, layout.STD: std}
        if settings.short == "pad":
            tensors[layout.FRAMES] = torch.tensor(min(valid, len(mean)))
        if video is not None:
            tensors |= self._video_features(video, row, number)
        for key, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise Rejected("not-finite", f"{key} holds numbers that are not finite")
        return Clip(name, row.text, len(part) / self.audio.sample_rate, tensors)

    def _video(self, row: ManifestRow) -> Video | None:
        if "clip" not in self.extractors:
            return None
        written = row.extra.get(VIDEO_COLUMN)
        if not isinstance(written, str) or not written:
            raise Rejected("no-video", f"no column {VIDEO_COLUMN!r}")
        fps = row.extra.get(FPS_COLUMN)
        path = Path(written).expanduser()
        root = row.source.parent
        try:
            return Video(path if path.is_absolute() else root / path, _number(fps))
        except DataError as error:
            raise Rejected("unreadable-video", str(error)) from error

    def _video_features(self, video: Video, row: ManifestRow, number: int) -> dict[str, Tensor]:
        seconds = self.settings.seconds
        found = {}
        for kind, name in (("clip", layout.CLIP), ("sync", layout.SYNC)):
            extractor = cast("VideoExtractor", self.extractors[cast("Kind", kind)])
            start = row.offset + number * seconds
            try:
                frames = video.frames(start, seconds, extractor.fps)
            except DataError as error:
                raise Rejected("unreadable-video", str(error)) from error
            found[name] = extractor.encode(frames)
        return found


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) and value != "" else None
    except ValueError:
        return None

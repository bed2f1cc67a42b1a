"""Frames of a video: a folder of pictures, an animated picture, or an array on disk.

Containers such as MP4 are not decoded here: turn them into a folder of pictures first, for example
with ``ffmpeg -i clip.mp4 -vf fps=24 clip/%05d.jpg``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from voicehub.errors import DataError, OptionalDependencyError

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
ANIMATIONS = (".gif", ".webp", ".apng", ".png")

Frames = np.ndarray[Any, Any]


class Video:
    """A video whose frames are read when they are asked for.

    Args:
        path: a folder of pictures in the order of their names, ``.npy`` of uint8 (frames, height,
            width, 3), or an animated picture.
        fps: frames a second of folder or array; an animated picture says itself.

    Raises:
        DataError: nothing to read there, or its rate is not known.
    """

    def __init__(self, path: Path, fps: float | None) -> None:
        self.path = path
        self._array: Frames | None = None
        self._pictures: list[Path] = []
        if path.is_dir():
            self._pictures = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURES)
            self.count = len(self._pictures)
        elif path.suffix == ".npy":
            self._array = _array(path)
            self.count = len(self._array)
        elif path.is_file() and path.suffix.lower() in ANIMATIONS:
            self._array, fps = _animation(path)
            self.count = len(self._array)
        else:
            raise DataError(
                f"{path}: no video that can be read; expected a folder of pictures, an animated "
                "picture, or .npy of uint8 (frames, height, width, 3). Make a folder of pictures "
                "of other files: ffmpeg -i FILE -vf fps=24 FOLDER/%05d.jpg"
            )
        if not self.count:
            raise DataError(f"{path}: holds no picture.")
        if fps is None or not fps > 0:
            raise DataError(
                f"{path}: its frames a second are not known; give the manifest's row a column "
                "'video_fps'."
            )
        self.fps = float(fps)

    @property
    def seconds(self) -> float:
        """Length."""
        return self.count / self.fps

    def frames(self, start: float, seconds: float, fps: float) -> Frames:
        """Frames uint8 (n, height, width, 3) of a segment at another rate, n = seconds * fps.

        Each is the one that is shown in the middle of its time.

        Raises:
            DataError: the segment is not within the video, or a picture is damaged.
        """
        wanted = max(1, round(seconds * fps))
        times = start + (np.arange(wanted) + 0.5) / fps
        places = np.floor(times * self.fps + 1e-6).astype(int)
        if places[-1] >= self.count + round(self.fps * 0.1):
            raise DataError(
                f"{self.path}: {self.seconds:.2f} s long; the segment ends at "
                f"{start + seconds:.2f} s."
            )
        places = np.minimum(places, self.count - 1)
        if self._array is not None:
            return np.asarray(self._array[places])
        seen = {number: _picture(self._pictures[number]) for number in sorted(set(places.tolist()))}
        if len({picture.shape for picture in seen.values()}) > 1:
            raise DataError(f"{self.path}: its pictures have different sizes.")
        return np.stack([seen[number] for number in places.tolist()])


def resized(frames: Frames, rows: int, columns: int) -> Frames:
    """Frames uint8 (n, rows, columns, 3), averaged over areas."""
    image = _pillow().Image
    made = [
        np.asarray(image.fromarray(frame).resize((columns, rows), image.Resampling.BOX))
        if frame.shape[0] >= rows and frame.shape[1] >= columns
        else np.asarray(image.fromarray(frame).resize((columns, rows), image.Resampling.BICUBIC))
        for frame in frames
    ]
    return np.stack(made) if made else np.zeros((0, rows, columns, 3), np.uint8)


def _array(path: Path) -> Frames:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}).") from error
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3:
        raise DataError(
            f"{path}: {array.dtype} {list(array.shape)}; expected uint8 (frames, height, width, 3)."
        )
    found: Frames = array
    return found


def _animation(path: Path) -> tuple[Frames, float]:
    pillow = _pillow()
    try:
        with pillow.Image.open(path) as picture:
            frames, milliseconds = [], 0.0
            for frame in pillow.ImageSequence.Iterator(picture):
                frames.append(np.asarray(frame.convert("RGB")))
                milliseconds += float(frame.info.get("duration", 0.0))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a picture ({error}).") from error
    if milliseconds <= 0:
        raise DataError(f"{path}: a picture that does not move, where a video is expected.")
    return np.stack(frames), 1000.0 * len(frames) / milliseconds


def _picture(path: Path) -> Frames:
    pillow = _pillow()
    try:
        with pillow.Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a picture ({error}).") from error


def _pillow() -> Any:
    """Pillow with the modules that are used here.

    Raises:
        OptionalDependencyError: it is not installed.
    """
    try:
        import PIL
        import PIL.Image
        import PIL.ImageSequence
    except ImportError as error:
        raise OptionalDependencyError(
            "Pictures of a video are read with Pillow, which is not installed: "
            'pip install "voicehub-flow[video]"'
        ) from error
    return PIL

"""Audio, pictures and text on their way from a recipe to the reporters of a run.

``Trainer.log_media({"eval/sample": Audio(wave, 22050)})`` hands them to every callback that
listens to ``on_media``; what a reporter cannot show it leaves out.
"""

from __future__ import annotations

import io
import struct
import wave
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True, eq=False)
class Audio:
    """A recording.

    Attributes:
        array: samples in [-1, 1], shape (samples,); an array or a tensor on any device. Kept as
            float32 NumPy; what is louder is clipped when written, not here.
        sample_rate: Hz.

    Raises:
        ValueError: wrong shape, no samples, or a sample rate that is not positive.
    """

    array: Array
    sample_rate: int

    def __post_init__(self) -> None:
        array = _numpy(self.array).astype(np.float32)
        if array.ndim != 1 or not array.size:
            raise ValueError(f"Audio needs samples of shape (samples,), got {array.shape}.")
        if self.sample_rate <= 0:
            raise ValueError(f"Audio needs a sample rate in Hz, got {self.sample_rate}.")
        object.__setattr__(self, "array", array)

    def as_int16(self) -> Array:
        """Samples as int16, shape (samples,); louder ones clipped, NaN as silence."""
        clipped: Array = np.clip(np.nan_to_num(self.array), -1.0, 1.0)
        return np.round(clipped * 32767).astype(np.int16)

    def as_wav(self) -> bytes:
        """The content of a WAV file, 16 bit, one channel."""
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(self.sample_rate)
            file.writeframes(self.as_int16().astype("<i2").tobytes())
        return buffer.getvalue()


@dataclass(frozen=True, eq=False)
class Image:
    """A picture, its first row at the top.

    Attributes:
        array: shape (height, width) for grey or (height, width, 3) for RGB; uint8, or floating
            in [0, 1]. Kept as uint8 NumPy.

    Raises:
        ValueError: another shape, no pixels, or floating values outside [0, 1].
    """

    array: Array

    def __post_init__(self) -> None:
        array = _numpy(self.array)
        if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)) or not array.size:
            raise ValueError(
                f"Image needs the shape (height, width) or (height, width, 3), got {array.shape}."
            )
        if array.dtype != np.uint8:
            # Not min and max: NaN must be refused too.
            if not ((array >= 0) & (array <= 1)).all():
                raise ValueError("Image needs uint8, or values in [0, 1]. See Image.of_matrix().")
            array = np.round(array.astype(np.float64) * 255).astype(np.uint8)
        object.__setattr__(self, "array", array)

    def as_png(self) -> bytes:
        """The content of a PNG file, 8 bits a channel."""
        array: Array = np.ascontiguousarray(self.array)
        height, width = array.shape[:2]
        colour = 0 if array.ndim == 2 else 2
        # Every row begins with the number of its filter: none.
        rows = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, -1)], axis=1)
        header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(*chunk) for chunk in chunks)

    @classmethod
    def of_matrix(cls, matrix: Any) -> Image:
        """A mel spectrogram, an attention map or an alignment as a grey picture.

        Args:
            matrix: shape (rows, columns), any finite range: the smallest value is black, the
                largest white. Row 0 is drawn at the bottom, as frequencies are.
        """
        values = _numpy(matrix).astype(np.float64)
        if values.ndim != 2 or not values.size or not np.isfinite(values).all():
            raise ValueError(f"A finite matrix is needed, got the shape {values.shape}.")
        low, high = values.min(), values.max()
        scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
        return cls(scaled[::-1])


@dataclass(frozen=True)
class Text:
    """A text: a transcript, a prediction beside its reference, a note."""

    text: str


Media: TypeAlias = "Audio | Image | Text"


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def _numpy(values: Any) -> Array:
    if isinstance(values, torch.Tensor):
        tensor = values.detach().cpu()
        # NumPy has no bfloat16.
        values = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return np.asarray(values)

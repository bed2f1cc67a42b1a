"""Audio, pictures and text for reporters."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
import torch

from voicehub.trainer.media import Audio, Image


def test_audio_as_a_file() -> None:
    samples = torch.tensor([0.0, 0.5, -1.0, 2.0, float("nan")], dtype=torch.bfloat16)
    audio = Audio(samples.requires_grad_(), 16000)
    with wave.open(io.BytesIO(audio.as_wav())) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        content = np.frombuffer(file.readframes(10), dtype="<i2")
    assert content.tolist() == [0, 16384, -32767, 32767, 0]
    assert audio.array.dtype == np.float32


def test_pictures() -> None:
    grey = Image(torch.tensor([[0.0, 0.5], [1.0, 0.25]]))
    assert grey.array.tolist() == [[0, 128], [255, 64]] and grey.array.dtype == np.uint8
    colours = np.full((2, 3, 3), 7, dtype=np.uint8)
    assert Image(colours).array is not None
    # Row 0, the lowest frequency, at the bottom; black to white over the range.
    mel = Image.of_matrix(torch.tensor([[-8.0, -4.0, 0.0], [-8.0, -8.0, -8.0]]))
    assert mel.array.tolist() == [[0, 0, 0], [0, 128, 255]]
    assert Image.of_matrix(np.ones((2, 2))).array.max() == 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: Audio(np.zeros((2, 8)), 8000),
        lambda: Audio(np.zeros(0), 8000),
        lambda: Audio(np.zeros(8), 0),
        lambda: Image(np.zeros((2, 3, 4), dtype=np.uint8)),
        lambda: Image(np.array([[1.5]])),
        lambda: Image(np.array([[np.nan]])),
        lambda: Image.of_matrix(np.array([[np.inf, 0.0]])),
        lambda: Image.of_matrix(np.zeros(3)),
    ],
)
def test_what_cannot_be_shown_is_refused(build: object) -> None:
    with pytest.raises(ValueError, match="need"):
        build()  # type: ignore[operator]

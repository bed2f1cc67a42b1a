"""Metrics of samples, by name, with listeners that say what they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.results import Transcription
from voicehub_flow.metrics.listeners import Listeners
from voicehub_flow.metrics.measures import MEASURES, Heard, Judges

WAVE = np.ones(800, np.float32)


class Recogniser:
    """Hears what it was told to; notes how long its recordings were."""

    front_end = SimpleNamespace(sample_rate=4000)

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts, self.lengths = texts, []

    def transcribe(self, waves: Sequence[Any]) -> list[Transcription]:
        self.lengths = [len(wave) for wave in waves]
        return [Transcription(str(n), text) for n, text in enumerate(self.texts)]


class Embedder:
    """The first two samples are the embedding."""

    def embed(self, waves: Sequence[Any], rate: int) -> torch.Tensor:
        return torch.stack([torch.as_tensor(wave[:2]) for wave in waves])


class Given(Listeners):
    def __init__(self, recogniser: Any = None, embedder: Any = None) -> None:
        super().__init__(None, None)
        self._loaded = {
            key: value
            for key, value in {"recogniser": recogniser, "embedder": embedder}.items()
            if value is not None
        }


def heard(text: str | None, wave: Any = WAVE, reference: Any = None) -> Heard:
    return Heard("a", text, wave, 8000, None if reference is None else (reference, 8000))


def test_errors_of_a_recogniser_that_listens_at_its_own_rate() -> None:
    recogniser = Recogniser(["one two", "tree"])
    judges = Judges(Given(recogniser))
    samples = [heard("One, two!"), heard("three"), heard(None)]
    assert MEASURES["wer"](samples, judges) == {"sample_wer": pytest.approx(1 / 3)}
    assert recogniser.lengths == [400, 400]
    assert MEASURES["cer"](samples, judges) == {"sample_cer": pytest.approx(1 / 12)}
    with pytest.raises(DataError, match="no sample is of a text"):
        MEASURES["wer"]([heard(None)], judges)


def test_similarity_is_that_of_each_sample_to_its_own_recording() -> None:
    judges = Judges(Given(embedder=Embedder()))
    east, north = np.array([1.0, 0.0], np.float32), np.array([0.0, 2.0], np.float32)
    samples = [heard("a", east, east * 3), heard("b", east, north), heard("c", east)]
    assert MEASURES["speaker_similarity"](samples, judges) == {
        "sample_speaker_similarity": pytest.approx(0.5)
    }
    with pytest.raises(DataError, match=r"no sample has a recording.*after_training\.samples"):
        MEASURES["speaker_similarity"]([heard("a")], judges)


def test_frechet_says_over_which_embedding() -> None:
    rng = np.random.default_rng(0)
    waves = [rng.normal(size=1600).astype(np.float32) for _ in range(3)]
    samples = [heard("a", wave, wave) for wave in waves]
    assert MEASURES["frechet_distance"](samples, Judges(Given())) == {
        "sample_frechet_distance_log_mel": pytest.approx(0.0, abs=1e-6)
    }
    moved = [heard("a", wave + 1.0, wave) for wave in waves]
    judges = Judges(Given(embedder=Embedder()), embedding="embedder")
    found = MEASURES["frechet_distance"](moved, judges)
    assert found == {"sample_frechet_distance_embedder": pytest.approx(2.0, rel=1e-4)}


def test_a_listener_that_is_not_there_is_named_by_its_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"after_training\.recogniser"):
        Listeners("/nowhere", None).check()
    with pytest.raises(ConfigurationError, match=r"set after_training\.embedder"):
        Listeners(None, None).embedder  # noqa: B018

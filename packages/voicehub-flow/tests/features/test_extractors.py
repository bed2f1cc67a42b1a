"""Extractors: what they promise of shapes, the way back, and identity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_flow.features.mel_pca import MelPca, MelPcaSettings, load
from voicehub_flow.features.registry import (
    build_extractor,
    extractor_names,
    register_extractor,
    require_identity,
    store_extractor,
    stored_extractor,
)
from voicehub_flow.features.settings import choices
from voicehub_flow.vocoders.settings import VocoderSettings

SMALL = {"sample_rate": 4000, "n_fft": 128, "hop_length": 50, "n_mels": 12}


def sounds(count: int = 6, seed: int = 0) -> list[torch.Tensor]:
    """Tones of different pitch that swell and fade."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(count):
        time = torch.arange(2000 + 100 * number) / 4000
        pitch = 200 + 1300 * torch.rand(1, generator=generator)
        swell = torch.sin(torch.pi * time / time[-1])
        noise = torch.randn(len(time), generator=generator)
        made.append(0.5 * swell * torch.sin(2 * torch.pi * pitch * time) + 0.01 * noise)
    return made


@pytest.fixture(scope="module")
def fitted():
    return MelPca.fit(sounds(), MelPcaSettings(**SMALL, latent_dim=5))


# -- probabilistic PCA -----------------------------------------------------------------------------


def test_latents_have_the_closed_form_of_probabilistic_pca(fitted):
    features = fitted.config.mel.build()
    frames = torch.cat([features(clip) for clip in sounds()]).double().numpy()
    values, vectors = np.linalg.eigh(np.cov(frames, rowvar=False, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = values[5:].mean()
    weights = vectors[:, :5] * np.sqrt(values[:5] - noise)
    inner = weights.T @ weights + noise * np.eye(5)
    clip = sounds(1, seed=9)[0]
    mean, std = fitted.encode(clip)
    centred = features(clip).double().numpy() - frames.mean(0)
    expected = centred @ weights @ np.linalg.inv(inner)
    signs = np.sign((expected * mean.numpy()).sum(0))  # of an eigenvector, none is right
    np.testing.assert_allclose(mean.numpy(), expected * signs, rtol=1e-4, atol=1e-4)
    variance = noise * np.diag(np.linalg.inv(inner))
    np.testing.assert_allclose(std.numpy()[0], np.sqrt(variance), rtol=1e-4)
    assert (std == std[:1]).all()


def test_latents_of_the_corpus_are_standard_normal_in_the_mean(fitted):
    pairs = [fitted.encode(clip) for clip in sounds()]
    mean, std = (torch.cat(kind).double() for kind in zip(*pairs, strict=True))
    assert mean.mean(0).abs().max() < 1e-5
    torch.testing.assert_close(mean.var(0, correction=0) + std[0].square(), torch.ones(5).double())


def test_with_all_components_the_frames_come_back(fitted):
    whole = MelPca.fit(sounds(), MelPcaSettings(**SMALL, latent_dim=12))
    clip = sounds(1, seed=4)[0]
    mean, std = whole.encode(clip)
    assert not std.any()
    frames = whole.config.mel.build()(clip)
    torch.testing.assert_close(whole.log_mel(mean), frames, rtol=1e-4, atol=1e-3)
    fewer = (fitted.log_mel(fitted.encode(clip)[0]) - frames).square().mean()
    assert 0 < fewer < frames.var()


def test_latents_become_sound_of_the_same_length(fitted):
    clip = sounds(1)[0]
    mean, _ = fitted.encode(clip)
    assert len(mean) == fitted.frames(len(clip)) == 1 + len(clip) // 50
    wave = fitted.decode(mean, VocoderSettings(iterations=4))
    assert wave.shape == ((len(mean) - 1) * 50,)
    assert torch.isfinite(wave).all() and wave.abs().max() > 0.01


def test_a_fitted_one_is_written_and_read_and_damage_is_found(fitted, tmp_path):
    kept = store_extractor(fitted, tmp_path / "audio")
    assert kept["saved"] and kept["place"] == "audio"
    again = stored_extractor("audio", kept, tmp_path)
    clip = sounds(1)[0]
    assert all(map(torch.equal, fitted.encode(clip), again.encode(clip)))
    other = MelPca.fit(sounds(seed=5), MelPcaSettings(**SMALL, latent_dim=5))
    with pytest.raises(DataError, match="other weights"):
        require_identity(other, kept["identity"], "a store")
    with pytest.raises(ConfigurationError, match="fitted with other settings"):
        build_extractor("audio", "log-mel-pca", tmp_path / "audio", {"latent_dim": 4})
    (tmp_path / "audio" / "pca.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"pca\.safetensors: cannot be read"):
        load(tmp_path / "audio")
    with pytest.raises(ConfigurationError, match="which is not there"):
        stored_extractor("audio", {**kept, "place": "elsewhere"}, tmp_path)


def test_too_little_audio_and_too_many_components_are_refused():
    with pytest.raises(DataError, match="too few to fit 12 mel bins"):
        MelPca.fit([torch.zeros(100)], MelPcaSettings(**SMALL, latent_dim=5))
    with pytest.raises(ConfigurationError, match="latent_dim 13 is over n_mels 12"):
        MelPcaSettings.load({**SMALL, "latent_dim": 13})


# -- text ------------------------------------------------------------------------------------------


def test_hashed_words_are_equal_where_words_are_and_similar_where_they_nearly_are():
    text = build_extractor("text", "hashed", None, {"tokens": 4, "channels": 64})
    one, two, other, empty, long = text.encode(
        ["a barking dog", "A  barking dog ", "a barking dogs", "", "a b c d e f"]
    )
    assert torch.equal(one, two)
    assert not empty.any() and not one[3].any()
    assert torch.equal(one[:2], other[:2]) and not torch.equal(one[2], other[2])
    place = text.channels // 4

    def likeness(first, second):
        return float(first[:-place] @ second[:-place])

    assert likeness(one[2], one[2]) == pytest.approx(1.0, abs=1e-5)
    assert 0.5 < likeness(one[2], other[2]) < 1.0
    assert abs(likeness(one[1], one[2])) < 0.5
    assert long.shape == (4, 64)
    # The same word elsewhere differs by its place alone.
    moved = text.encode(["dog"])[0]
    assert torch.equal(moved[0, :-place], one[2, :-place])
    assert not torch.equal(moved[0, -place:], one[2, -place:])


def test_hashed_characters_are_a_token_each():
    text = build_extractor("text", "hashed", None, {"tokens": 5, "unit": "character"})
    features = text.encode(["ab a"])[0]
    assert features.abs().sum(1).bool().tolist() == [True] * 4 + [False]


# -- video -----------------------------------------------------------------------------------------


def test_grids_average_colours_and_see_what_moves():
    pytest.importorskip("PIL")
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    frames[1:, :, :4] = 255
    grid = build_extractor("clip", "frame-grid", None, {"rows": 1, "columns": 2})
    motion = build_extractor("sync", "motion-grid", None, {"rows": 1, "columns": 2})
    assert grid.encode(frames).tolist() == [[-1.0] * 6, *[[1.0] * 3 + [-1.0] * 3] * 2]
    assert motion.encode(frames).tolist() == [[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]
    assert (grid.channels, motion.channels) == (6, 2)


# -- the registry ------------------------------------------------------------------------------


def test_extractors_are_found_by_name_and_can_be_added():
    with pytest.raises(ConfigurationError, match=r"unknown extractor of text 'hash'.*hashed"):
        build_extractor("text", "hash", None, {})
    with pytest.raises(ConfigurationError, match="name its directory, encodec=DIRECTORY"):
        build_extractor("audio", "encodec", None, {})
    with pytest.raises(ConfigurationError, match="is no directory. Extractors read local"):
        build_extractor("text", "clip-text", __import__("pathlib").Path("/nowhere"), {})
    with pytest.raises(ConfigurationError, match="exists already"):
        register_extractor("text", "hashed", lambda directory, settings: None)
    made = build_extractor("text", "hashed", None, {"tokens": 3})
    register_extractor("text", "mine", lambda directory, settings: made, exist_ok=True)
    assert build_extractor("text", "mine", None, {}) is made
    assert "mine" in extractor_names("text")


def test_choices_of_the_command_line_are_read_with_their_options():
    found = choices(
        {"audio": "encodec=some/where", "text": "hashed", "clip": None, "sync": None},
        ["text.tokens=7", "text.unit=character"],
    )
    assert found["audio"].name == "encodec" and str(found["audio"].directory) == "some/where"
    assert found["text"].options == {"tokens": 7, "unit": "character"}
    for wrong, message in (
        (["text=7"], "expected KIND.KEY=VALUE"),
        (["clip.fps=7"], "there are audio, text"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            choices({"audio": "dac=x", "text": "hashed", "clip": None, "sync": None}, wrong)
    with pytest.raises(ConfigurationError, match="two kinds of features"):
        choices({"audio": "dac=x", "text": "hashed", "clip": "frame-grid", "sync": None}, [])
    with pytest.raises(ConfigurationError, match="NAME=DIRECTORY"):
        choices({"audio": "dac=", "text": "hashed", "clip": None, "sync": None}, [])

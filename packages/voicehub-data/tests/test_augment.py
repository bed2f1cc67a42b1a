"""Augmentations: what they do, and that their draws depend on the key alone."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import resampled_length
from voicehub_data.augment import (
    Compose,
    Gain,
    Noise,
    Reverb,
    SpecAugment,
    Speed,
    audio_augmentation,
    draw_generator,
    feature_augmentation,
)
from voicehub_data.augment.environment import convolve, mean_power
from voicehub_data.config import AugmentConfig

RATE = 16000


def key(draw=0, epoch=0, seed=0, index=0):
    return SampleKey(seed, epoch, draw, index)


@pytest.fixture
def noise_folder(tmp_path, make_speech, write_audio):
    write_audio("noise/long.wav", make_speech(5.0, 22050, 11), 22050)
    write_audio("noise/deep/short.flac", make_speech(0.3, RATE, 12), RATE)
    (tmp_path / "noise/readme.txt").write_text("not audio")
    return tmp_path / "noise"


@pytest.fixture
def room_folder(tmp_path, write_audio):
    decay = np.random.default_rng(3).standard_normal(3000) * np.exp(-np.arange(3000) / 400)
    response = np.concatenate([np.zeros(200), [1.0], 0.2 * decay]).astype(np.float32)
    write_audio("rooms/a.wav", response, RATE, subtype="FLOAT")
    return tmp_path / "rooms"


@pytest.fixture
def every(noise_folder, room_folder):
    return [
        Gain((-10, 10)),
        Speed((0.8, 0.9, 1.1, 1.2)),
        Noise(noise_folder, (0, 30), probability=1.0),
        Reverb(room_folder, probability=1.0),
    ]


class TestKeys:
    def test_equal_keys_give_equal_audio(self, every, make_speech):
        audio = make_speech()
        before = audio.copy()
        for transform in every:
            one = transform.apply(audio, RATE, key(3), "a")
            np.random.seed(99)
            two = pickle.loads(pickle.dumps(transform)).apply(audio, RATE, key(3), "a")
            assert np.array_equal(one, two), transform.name
            assert one.dtype == np.float32
        assert np.array_equal(audio, before)

    @pytest.mark.parametrize(
        "other", [key(1), key(epoch=1), key(seed=1)], ids=["draw", "epoch", "seed"]
    )
    def test_each_part_of_the_key_counts(self, every, make_speech, other):
        audio = make_speech()
        for transform in every:
            if transform.name == "reverb":
                continue  # one room: nothing to draw
            draws = {_digest(transform.apply(audio, RATE, key(), name)) for name in "abcdefgh"}
            changed = {_digest(transform.apply(audio, RATE, other, name)) for name in "abcdefgh"}
            assert draws != changed, transform.name

    def test_the_position_in_the_dataset_does_not_count(self, every, make_speech):
        audio = make_speech()
        for transform in every:
            one = transform.apply(audio, RATE, key(index=1), "a")
            two = transform.apply(audio, RATE, key(index=2), "a")
            assert np.array_equal(one, two), transform.name

    def test_samples_draw_apart(self, every, make_speech):
        audio = make_speech()
        for transform in every[:3]:
            draws = {_digest(transform.apply(audio, RATE, key(), name)) for name in "abcdefgh"}
            assert len(draws) > 1, transform.name

    def test_transforms_draw_apart(self):
        names = ["gain", "speed", "noise"]
        draws = {draw_generator(key(), "a", name).random() for name in names}
        assert len(draws) == 3

    def test_order_of_use_does_not_count(self, every, make_speech):
        audio = make_speech()
        forwards = [t.apply(audio, RATE, key(i), "a") for i, t in enumerate(every)]
        pairs = reversed(list(enumerate(copy.deepcopy(every))))
        backwards = [t.apply(audio, RATE, key(i), "a") for i, t in pairs]
        for one, two in zip(forwards, reversed(backwards), strict=True):
            assert np.array_equal(one, two)

    def test_global_random_state_is_left_alone(self, every, make_speech):
        np.random.seed(5)
        before = np.random.get_state()[1].copy()
        for transform in every:
            transform.apply(make_speech(), RATE, key(), "a")
        assert np.array_equal(before, np.random.get_state()[1])


class TestGain:
    @given(st.integers(0, 10_000))
    def test_range(self, draw):
        audio = np.linspace(-0.5, 0.5, 101, dtype=np.float32)
        out = Gain((-6, 3)).apply(audio, RATE, key(draw), "a")
        decibels = 20 * np.log10(out[-1] / audio[-1])
        assert -6.001 <= decibels <= 3.001
        assert np.allclose(out, audio * (out[-1] / audio[-1]), atol=1e-6)

    def test_probability(self, make_speech):
        audio = make_speech(0.1)
        gain = Gain((3, 6), probability=0.3)
        changed = [gain.apply(audio, RATE, key(i), "a") is not audio for i in range(2000)]
        assert 0.25 < np.mean(changed) < 0.35
        never = Gain((3, 6), probability=0.0)
        assert all(never.apply(audio, RATE, key(i), "a") is audio for i in range(100))

    @pytest.mark.parametrize("bad", [(1, 0), (0, float("nan")), (0,), "ab"])
    def test_bad_ranges(self, bad):
        with pytest.raises(ConfigurationError, match="gain: decibels"):
            Gain(bad)

    def test_bad_probability(self):
        with pytest.raises(ConfigurationError, match="probability"):
            Gain(probability=1.5)


class TestSpeed:
    def test_length_and_pitch(self):
        tone = np.sin(2 * np.pi * 500 * np.arange(RATE) / RATE).astype(np.float32)
        out = Speed((1.25,)).apply(tone, RATE, key(), "a")
        assert len(out) == resampled_length(RATE, 20000, RATE) == 12800
        spectrum = np.abs(np.fft.rfft(out[2000:10000]))
        assert abs(np.argmax(spectrum) * RATE / 8000 - 625) <= 2

    def test_every_factor_is_drawn(self, make_speech):
        speed = Speed((0.9, 1.0, 1.1))
        lengths = {len(speed.apply(make_speech(0.2), RATE, key(i), "a")) for i in range(60)}
        assert lengths == {2909, 3200, 3556}
        assert speed.max_stretch == pytest.approx(1 / 0.9)

    def test_bad_factors(self):
        for bad in ((), (0.0,), (5.0,)):
            with pytest.raises(ConfigurationError, match="factors"):
                Speed(bad)


class TestNoise:
    @pytest.mark.parametrize("rate", [RATE, 8000])
    def test_measured_ratio_is_the_drawn_one(self, noise_folder, make_speech, rate):
        noise = Noise(noise_folder, (0.0, 30.0), probability=1.0)
        drawn_values = []
        for draw in range(60):
            audio = make_speech(0.3 + 0.05 * draw, rate, draw)
            out = noise.apply(audio, rate, key(draw), "a")
            assert out.shape == audio.shape
            generator = draw_generator(key(draw), "a", "noise")
            generator.random()
            drawn = generator.uniform(0.0, 30.0)
            added = (out.astype(np.float64) - audio).astype(np.float32)
            measured = 10 * np.log10(mean_power(audio) / mean_power(added))
            assert abs(measured - drawn) < 0.5
            drawn_values.append(drawn)
        assert min(drawn_values) < 5
        assert max(drawn_values) > 25

    def test_long_files_are_not_decoded_whole(self, noise_folder, make_speech, monkeypatch):
        import soundfile

        (noise_folder / "deep/short.flac").unlink()
        decoded = []
        read = soundfile.SoundFile.read

        def counting(self, *args, **kwargs):
            out = read(self, *args, **kwargs)
            decoded.append(len(out))
            return out

        monkeypatch.setattr(soundfile.SoundFile, "read", counting)
        Noise(noise_folder, probability=1.0).apply(make_speech(0.5), RATE, key(), "a")
        assert len(decoded) == 1
        assert decoded[0] <= 0.5 * 22050 + 10

    def test_silence_passes(self, noise_folder):
        zeros = np.zeros(1000, np.float32)
        assert Noise(noise_folder, probability=1.0).apply(zeros, RATE, key(), "a") is zeros

    def test_silent_noise_is_refused(self, tmp_path, write_audio, make_speech):
        write_audio("quiet/a.wav", np.zeros(5000, np.float32))
        noise = Noise(tmp_path / "quiet", probability=1.0)
        with pytest.raises(DataError, match="digital silence"):
            noise.apply(make_speech(0.1), RATE, key(), "a")

    def test_missing_and_empty_folders(self, tmp_path):
        with pytest.raises(ConfigurationError, match="does not exist"):
            Noise(tmp_path / "none")
        with pytest.raises(ConfigurationError, match="holds no audio"):
            Noise(tmp_path)

    def test_the_folder_may_move(self, noise_folder, make_speech, tmp_path):
        audio = make_speech()
        before = Noise(noise_folder, probability=1.0)
        out = [before.apply(audio, RATE, key(i), "a") for i in range(5)]
        identity = before.fingerprint()
        noise_folder.rename(tmp_path / "moved")
        after = Noise(tmp_path / "moved", probability=1.0)
        assert after.fingerprint() == identity
        for i, wanted in enumerate(out):
            assert np.array_equal(after.apply(audio, RATE, key(i), "a"), wanted)
        (tmp_path / "moved/deep/short.flac").unlink()
        assert Noise(tmp_path / "moved").fingerprint() != identity


class TestReverb:
    def test_place_length_and_power(self, room_folder):
        click = np.zeros(8000, np.float32)
        click[1000] = 1.0
        out = Reverb(room_folder, probability=1.0).apply(click, RATE, key(), "a")
        assert out.shape == click.shape
        assert np.argmax(np.abs(out)) == 1000
        assert mean_power(out) == pytest.approx(mean_power(click), rel=1e-5)
        assert np.abs(out[1001:3000]).max() > 0.01
        assert np.abs(out[:900]).max() < 1e-5

    def test_convolution(self):
        generator = np.random.default_rng(0)
        x, h = (generator.standard_normal(n).astype(np.float32) for n in (1000, 37))
        assert np.allclose(convolve(x, h), np.convolve(x.astype(float), h.astype(float)))

    def test_silent_response(self, tmp_path, write_audio, make_speech):
        write_audio("rooms/a.wav", np.zeros(500, np.float32))
        with pytest.raises(DataError, match="impulse response is digital silence"):
            Reverb(tmp_path / "rooms", probability=1.0).apply(make_speech(), RATE, key(), "a")


class TestSpecAugment:
    def test_masks_have_their_widths(self):
        spec = SpecAugment(2, 10, 1.0, 2, 5)
        for draw in range(300):
            spans = spec.spans(100, 80, key(draw), "a")
            for start, stop in spans.time:
                assert 0 <= start <= stop <= 100
                assert stop - start <= 10
            for start, stop in spans.frequency:
                assert 0 <= start <= stop <= 80
                assert stop - start <= 5
        widths = {
            stop - start
            for draw in range(300)
            for start, stop in spec.spans(100, 80, key(draw), "a").time
        }
        assert widths == set(range(11))

    @given(frames=st.integers(0, 30), bins=st.integers(1, 10), draw=st.integers(0, 999))
    def test_short_clips(self, frames, bins, draw):
        spec = SpecAugment(3, 40, 0.2, 2, 15, mask_value=7.0)
        features = np.ones((frames, bins), np.float32)
        out = spec.apply(features, RATE, key(draw), "a")
        assert out.shape == features.shape
        masked_rows = (out == 7.0).all(axis=1).sum() if (out != 7.0).any() else 0
        assert masked_rows <= 3 * int(0.2 * frames)

    def test_numpy_and_torch_agree_and_inputs_are_kept(self):
        features = np.random.default_rng(0).standard_normal((60, 40)).astype(np.float32)
        tensor = torch.from_numpy(features.copy())
        spec = SpecAugment(time_mask_max_fraction=1.0)
        out = spec.apply(features, RATE, key(4), "a")
        assert np.array_equal(spec.apply(tensor, RATE, key(4), "a").numpy(), out)
        assert np.array_equal(tensor.numpy(), features)
        assert (out == 0).any()

    def test_padding_is_left_alone_and_does_not_count(self):
        spec = SpecAugment(time_mask_max_fraction=1.0, mask_value=9.0)
        alone = torch.zeros(30, 40)
        padded = torch.zeros(80, 40)
        for draw in range(20):
            one = spec.apply(alone, RATE, key(draw), "a")
            two = spec.apply(padded, RATE, key(draw), "a", num_frames=30)
            assert torch.equal(one, two[:30])
            assert (two[30:] == 0).all()

    def test_settings(self):
        for bad in ({"time_masks": -1}, {"time_mask_max_fraction": 2}, {"probability": -1}):
            with pytest.raises(ConfigurationError, match="spec_augment"):
                SpecAugment(**bad)


class TestCompose:
    def test_chain_and_stretch(self, make_speech):
        audio = make_speech()
        gain, speed = Gain(), Speed((0.8,))
        chain = Compose([gain, speed])
        wanted = speed.apply(gain.apply(audio, RATE, key(), "a"), RATE, key(), "a")
        assert np.array_equal(chain.apply(audio, RATE, key(), "a"), wanted)
        assert chain.max_stretch == pytest.approx(1.25)

    def test_names_must_differ(self):
        with pytest.raises(ConfigurationError, match="two transforms are named 'gain'"):
            Compose([Gain(), Gain()])
        two = Compose([Gain((0, 20)), Gain((0, 20), name="gain2")])
        out = two.apply(np.ones(1, np.float32), RATE, key(), "a")
        one = Gain((0, 20)).apply(np.ones(1, np.float32), RATE, key(), "a")
        assert out[0] != pytest.approx(one[0] ** 2, rel=1e-3)

    def test_only_audio(self):
        with pytest.raises(ConfigurationError, match="works on features"):
            Compose([SpecAugment()])


def test_from_configuration(noise_folder, room_folder):
    config = AugmentConfig.load(
        {
            "gain": {"decibels": [-3, 3], "probability": 0.5},
            "speed": {"factors": [0.95, 1.05]},
            "noise": {"folder": str(noise_folder), "snr": [10, 15]},
            "reverb": {"folder": str(room_folder)},
            "spec_augment": {"time_masks": 1},
        }
    )
    chain = audio_augmentation(config)
    assert [t.name for t in chain.transforms] == ["speed", "reverb", "noise", "gain"]
    assert chain.transforms[2].snr == (10, 15)
    assert chain.transforms[3].probability == 0.5
    assert feature_augmentation(config).time_masks == 1
    assert audio_augmentation(AugmentConfig()) is None
    assert feature_augmentation(AugmentConfig()) is None


def _digest(audio: np.ndarray) -> bytes:
    return audio.tobytes()

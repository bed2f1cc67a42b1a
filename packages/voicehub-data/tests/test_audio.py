"""Decoding: formats, resampling, mix-down, segments, and files that are not what they claim."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_data.audio import (
    END_TOLERANCE,
    audio_info,
    load_audio,
    resample,
    resampled_length,
    to_mono,
)


@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    [
        ("a.wav", {}, 1e-4),
        ("a.wav", {"subtype": "FLOAT"}, 0.0),
        ("a.wav", {"subtype": "PCM_24"}, 1e-6),
        ("a.flac", {}, 1e-4),
        ("a.ogg", {}, 0.1),
        ("a.mp3", {}, 0.1),
    ],
)
def test_formats(write_audio, make_speech, name, options, tolerance):
    samples = make_speech(1.0, 16000)
    path = write_audio(name, samples, 16000, **options)
    info = audio_info(path)
    assert (info.sample_rate, info.frames, info.channels) == (16000, 16000, 1)
    assert info.duration == 1.0
    audio = load_audio(path, sample_rate=16000)
    assert audio.dtype == np.float32
    assert audio.shape == (16000,)
    assert np.abs(audio - samples).max() <= tolerance


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_a_segment_is_that_part_of_the_whole(write_audio, suffix):
    path = write_audio(f"a.{suffix}", 3.0, 16000)
    whole = load_audio(path, sample_rate=16000)
    part = load_audio(path, sample_rate=16000, offset=1.25, duration=0.5)
    assert part.shape == (8000,)
    assert np.abs(part - whole[20000:28000]).max() < 1e-6


def test_a_segment_decodes_nothing_else(write_audio, monkeypatch):
    path = write_audio("long.wav", 60.0, 8000)
    decoded = []
    read = soundfile.SoundFile.read

    def counting(self, frames=-1, *args, **kwargs):
        out = read(self, frames, *args, **kwargs)
        decoded.append(len(out))
        return out

    monkeypatch.setattr(soundfile.SoundFile, "read", counting)
    assert len(load_audio(path, sample_rate=16000, offset=30.0, duration=0.25)) == 4000
    assert decoded == [2000]


def test_channels_are_averaged(write_audio, make_speech):
    left, right = make_speech(0.5, 16000, 1), make_speech(0.5, 16000, 2)
    stereo = write_audio("s.wav", np.stack([left, right], 1), 16000, subtype="FLOAT")
    assert np.allclose(load_audio(stereo, sample_rate=16000), (left + right) / 2, atol=1e-7)
    eight = write_audio("e.wav", np.stack([left] * 8, 1), 16000, subtype="FLOAT")
    assert audio_info(eight).channels == 8
    assert np.allclose(load_audio(eight, sample_rate=16000), left, atol=1e-7)
    assert to_mono(np.zeros((3, 1), np.float32)).flags.c_contiguous


@given(
    frames=st.integers(0, 4000),
    rates=st.tuples(
        st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]),
        st.sampled_from([8000, 16000, 24000, 44100]),
    ),
)
def test_resampled_length_is_exact(frames, rates):
    out = resample(np.full(frames, 0.5, np.float32), *rates)
    assert len(out) == resampled_length(frames, *rates)
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    if frames:
        assert abs(len(out) - frames * rates[1] / rates[0]) <= 0.5 or len(out) == 1


def test_resampling_keeps_the_signal():
    time = np.arange(44100) / 44100
    tone = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    out = resample(tone, 44100, 16000)
    wanted = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(out[200:-200] - wanted[200:-200]).max() < 1e-3


def test_rate_none_keeps_the_files_own(write_audio):
    path = write_audio("a.wav", 0.5, 22050)
    assert len(load_audio(path, sample_rate=None)) == 11025
    assert len(load_audio(path, sample_rate=16000)) == 8000


def test_a_very_short_clip(write_audio):
    path = write_audio("short.wav", 0.01, 8000)
    assert len(load_audio(path, sample_rate=16000)) == 160
    one = write_audio("one.wav", np.array([0.25], np.float32), 48000, subtype="FLOAT")
    assert load_audio(one, sample_rate=8000).shape == (1,)


class TestRefusals:
    def test_missing(self, tmp_path):
        with pytest.raises(DataError, match=r"none\.wav: no such audio file.*audio_root"):
            load_audio(tmp_path / "none.wav", sample_rate=16000)

    def test_directory(self, tmp_path):
        with pytest.raises(DataError, match="found a directory"):
            load_audio(tmp_path, sample_rate=16000)

    def test_zero_bytes(self, tmp_path):
        (tmp_path / "a.wav").write_bytes(b"")
        with pytest.raises(DataError, match="zero bytes"):
            audio_info(tmp_path / "a.wav")

    @pytest.mark.parametrize("name", ["a.wav", "a.mp3", "a.flac", "a.ogg"])
    def test_text_under_an_audio_name(self, tmp_path, name):
        (tmp_path / name).write_text("this is no audio\n" * 50)
        with pytest.raises(DataError, match="not decodable as audio") as error:
            load_audio(tmp_path / name, sample_rate=16000)
        assert str(tmp_path / name) in str(error.value)

    def test_no_samples(self, write_audio):
        path = write_audio("a.wav", np.zeros(0, np.float32), 16000)
        with pytest.raises(DataError, match="holds no samples"):
            load_audio(path, sample_rate=16000)

    @pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
    def test_truncated_flac(self, write_audio, share):
        path = write_audio("a.flac", 4.0, 16000)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DataError, match="truncated or damaged|truncated:"):
            load_audio(path, sample_rate=16000)

    def test_damaged_ogg(self, write_audio):
        path = write_audio("a.ogg", 4.0, 16000)
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 300] = bytes(300)
        path.write_bytes(content)
        with pytest.raises(DataError, match="truncated"):
            load_audio(path, sample_rate=16000)

    @pytest.mark.parametrize("rate", [1, 3_000_000])
    def test_absurd_rates(self, write_audio, rate):
        path = write_audio("a.wav", 0.5)
        content = bytearray(path.read_bytes())
        content[24:28] = rate.to_bytes(4, "little")
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"sample rate of {rate} Hz"):
            load_audio(path, sample_rate=16000)

    def test_a_header_that_promises_terabytes(self, write_audio):
        path = write_audio("a.flac", 0.5)
        content = bytearray(path.read_bytes())
        content[21] |= 0x0F
        content[22:26] = b"\xff" * 4
        path.write_bytes(content)
        with pytest.raises(DataError, match="truncated"):
            load_audio(path, sample_rate=16000)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, write_audio, bad):
        samples = np.zeros(100, np.float32)
        samples[7] = bad
        path = write_audio("a.wav", samples, 16000, subtype="FLOAT")
        with pytest.raises(DataError, match="1 of 100 samples are NaN or infinite"):
            load_audio(path, sample_rate=8000)
        assert len(load_audio(path, sample_rate=8000, offset=0.002)) == 34

    @pytest.mark.parametrize(
        ("offset", "duration", "words"),
        [
            (1.0, None, "at or past the end"),
            (2.0, 0.5, "at or past the end"),
            (0.5, 0.7, r"segment ends at 1\.200 s, but the file at 1\.000 s"),
            (-0.1, None, "offset must be"),
            (float("nan"), None, "offset must be"),
            (0.0, 0.0, "duration must be"),
            (0.0, -1.0, "duration must be"),
            (0.0, float("inf"), "duration must be"),
        ],
    )
    def test_segments_outside_the_file(self, write_audio, offset, duration, words):
        path = write_audio("a.wav", 1.0, 16000)
        with pytest.raises(DataError, match=words):
            load_audio(path, sample_rate=16000, offset=offset, duration=duration)

    def test_rate(self, write_audio):
        path = write_audio("a.wav", 0.1, 16000)
        with pytest.raises(DataError, match="sample_rate must be positive"):
            load_audio(path, sample_rate=0)


def test_rounded_durations_are_cut_at_the_end(write_audio):
    path = write_audio("a.wav", 1.0, 16000)
    assert len(load_audio(path, sample_rate=16000, duration=1.0 + END_TOLERANCE / 2)) == 16000
    # A shorter duration is honoured exactly: batch plans rely on it as an upper bound.
    assert len(load_audio(path, sample_rate=16000, duration=0.99)) == 15840


def test_unknown_length_is_read_to_the_end(write_audio):
    path = write_audio("a.flac", 2.0, 16000)
    content = bytearray(path.read_bytes())
    # The 36 bits of STREAMINFO that state the number of samples; 0 means unknown.
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    info = audio_info(path)
    assert info.frames == -1
    assert np.isnan(info.duration)
    whole = load_audio(path, sample_rate=16000)
    assert len(whole) == 32000
    part = load_audio(path, sample_rate=16000, offset=1.5, duration=0.25)
    assert np.array_equal(part, whole[24000:28000])
    with pytest.raises(DataError, match="holds no samples"):
        load_audio(path, sample_rate=16000, offset=5.0)
    with pytest.raises(DataError, match="truncated"):
        load_audio(path, sample_rate=16000, offset=1.5, duration=5.0)


def test_shared_recordings(recordings):
    audio = load_audio(recordings / "ljspeech/audio/LJ001-0002.flac", sample_rate=16000)
    assert abs(len(audio) / 16000 - 1.899546) < 1e-3
    assert 0.1 < np.abs(audio).max() <= 1.0

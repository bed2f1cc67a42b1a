"""STFT, mel filterbanks, log-mel and Griffin-Lim against definitions and torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.audio import load_audio
from voicehub_data.features import (
    LogMel,
    griffin_lim,
    hz_to_mel,
    istft,
    mel_filterbank,
    mel_to_hz,
    mel_to_magnitude,
    num_frames,
    stft,
)


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class TestStft:
    @pytest.mark.parametrize("pad_mode", ["constant", "reflect"])
    @pytest.mark.parametrize(
        ("n_fft", "hop", "win"), [(400, 160, 400), (512, 128, 300), (64, 7, 64)]
    )
    def test_equals_torchs(self, n_fft, hop, win, pad_mode):
        audio = noise(2, 3001)
        window = torch.hann_window(win, dtype=torch.float64)
        ours = stft(audio, n_fft, hop, window, pad_mode=pad_mode)
        theirs = torch.stft(
            audio, n_fft, hop, win, window, center=True, pad_mode=pad_mode, return_complex=True
        )
        assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-10)

    def test_uncentred(self):
        audio = noise(1000)
        window = torch.hann_window(256, dtype=torch.float64)
        ours = stft(audio, 256, 100, window, center=False)
        theirs = torch.stft(audio, 256, 100, 256, window, center=False, return_complex=True)
        assert torch.allclose(ours, theirs.T, atol=1e-10)

    @given(
        samples=st.integers(0, 700),
        n_fft=st.integers(2, 200),
        hop=st.integers(1, 150),
        center=st.booleans(),
    )
    @settings(deadline=None)
    def test_length_formula(self, samples, n_fft, hop, center):
        window = torch.ones(n_fft)
        spectrum = stft(torch.ones(samples), n_fft, hop, window, center=center)
        frames = num_frames(samples, n_fft, hop, center=center)
        assert spectrum.shape == (frames, n_fft // 2 + 1)
        lengths = torch.tensor([samples, samples + 1])
        assert num_frames(lengths, n_fft, hop, center=center)[0] == frames

    def test_inverse(self):
        audio = noise(2, 4000)
        window = torch.hann_window(400, dtype=torch.float64)
        back = istft(stft(audio, 400, 100, window), 400, 100, window, length=4000)
        assert torch.allclose(back, audio, atol=1e-10)
        longer = istft(stft(audio, 400, 100, window), 400, 100, window, length=5000)
        assert longer.shape == (2, 5000)

    def test_errors(self):
        with pytest.raises(ConfigurationError, match="win_length 500 exceeds"):
            stft(torch.ones(1000), 400, 100, torch.ones(500))
        with pytest.raises(DataError, match="too short for reflection"):
            stft(torch.ones(200), 400, 100, torch.ones(400), pad_mode="reflect")


class TestMel:
    def test_scales_at_known_points(self):
        # 1000 Hz is 15 on Slaney's scale (3 bins of 200 Hz each); on HTK's it is 1000 nearly.
        assert hz_to_mel(1000.0, "slaney") == pytest.approx(15.0)
        assert hz_to_mel(6400.0, "slaney") == pytest.approx(15.0 + 27.0)
        assert hz_to_mel(200.0, "slaney") == pytest.approx(3.0)
        assert hz_to_mel(1000.0, "htk") == pytest.approx(999.9855, abs=1e-3)
        assert hz_to_mel(0.0, "htk") == 0.0

    @pytest.mark.parametrize("scale", ["htk", "slaney"])
    def test_inverse(self, scale):
        hz = np.linspace(0, 8000, 1000)
        assert np.allclose(mel_to_hz(hz_to_mel(hz, scale), scale), hz, atol=1e-8)
        assert (np.diff(hz_to_mel(hz, scale)) > 0).all()

    @pytest.mark.parametrize("scale", ["htk", "slaney"])
    def test_triangles(self, scale):
        filters = mel_filterbank(16000, 1024, 40, f_min=50, f_max=7600, scale=scale, norm="none")
        assert filters.shape == (40, 513)
        assert (filters >= 0).all()
        assert filters.max() <= 1.0
        bins = np.arange(513) * 16000 / 1024
        # Neighbours overlap so that, between the outer centres, each bin's weights sum to 1.
        corners = mel_to_hz(np.linspace(*hz_to_mel(np.array([50, 7600]), scale), 42), scale)
        inside = (bins >= corners[1]) & (bins <= corners[-2])
        assert np.allclose(filters.sum(axis=0)[inside], 1.0)
        assert (filters[:, bins < 50] == 0).all()

    def test_slaney_norm_has_unit_area(self):
        filters = mel_filterbank(16000, 4096, 40, scale="slaney", norm="slaney")
        areas = filters.sum(axis=1) * 16000 / 4096
        assert np.allclose(areas, 1.0, atol=0.02)

    @pytest.mark.parametrize(
        ("n_fft", "scale", "norm", "f_min"),
        [(400, "slaney", "slaney", 0.0), (1024, "htk", "none", 20.0), (1024, "htk", "slaney", 0.0)],
    )
    def test_equals_the_reference_of_transformers(self, n_fft, scale, norm, f_min):
        audio_utils = pytest.importorskip("transformers.audio_utils")
        theirs = audio_utils.mel_filter_bank(
            n_fft // 2 + 1,
            80,
            f_min,
            8000.0,
            16000,
            norm=None if norm == "none" else norm,
            mel_scale=scale,
        )
        ours = mel_filterbank(16000, n_fft, 80, f_min=f_min, scale=scale, norm=norm)
        assert np.allclose(ours.T, theirs, atol=1e-10)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"n_mels": 200}, "hold no FFT bin"),
            ({"f_max": 9000.0}, "half the sample rate"),
            ({"f_min": 500.0, "f_max": 500.0}, "f_min < f_max"),
            ({"scale": "bark"}, "scale is htk or slaney"),
        ],
    )
    def test_errors(self, options, words):
        arguments = {"sample_rate": 16000, "n_fft": 400, "n_mels": 40, **options}
        with pytest.raises(ConfigurationError, match=words):
            mel_filterbank(**arguments)


class TestLogMel:
    def test_definition(self):
        audio = noise(8000, dtype=torch.float32)
        layer = LogMel(n_mels=40, log_floor=1e-5)
        window = torch.hann_window(400)
        power = stft(audio, 400, 160, window).abs() ** 2
        filters = torch.from_numpy(mel_filterbank(16000, 400, 40)).float()
        wanted = (power @ filters.T).clamp(min=1e-5).log()
        assert torch.allclose(layer(audio), wanted, atol=1e-4)

    def test_magnitudes(self):
        audio = noise(4000, dtype=torch.float32)
        layer = LogMel(n_mels=20, power=1.0)
        wanted = stft(audio, 400, 160, torch.hann_window(400)).abs() @ layer.filterbank
        assert torch.allclose(layer(audio), wanted.clamp(min=1e-6).log(), atol=1e-4)

    @given(st.integers(0, 2000))
    @settings(deadline=None, max_examples=50)
    def test_length_formula(self, samples):
        layer = LogMel(8000, 200, 80, 20)
        assert layer(torch.zeros(samples)).shape == (layer.num_frames(samples), 20)

    @pytest.mark.parametrize("normalize", ["none", "bin", "clip"])
    @pytest.mark.parametrize("preemphasis", [0.0, 0.97])
    @pytest.mark.parametrize("center", [True, False])
    def test_batch_equals_single(self, normalize, preemphasis, center):
        layer = LogMel(
            8000, 200, 80, 20, normalize=normalize, preemphasis=preemphasis, center=center
        ).double()
        lengths = torch.tensor([4000, 1234, 200, 3999, 801])
        # Garbage behind each clip's end must not matter.
        batch = torch.full((5, 4500), 1e3, dtype=torch.float64)
        clips = [noise(int(n), seed=int(n)) for n in lengths]
        for row, clip in zip(batch, clips, strict=True):
            row[: len(clip)] = clip
        features = layer(batch, lengths)
        frames = layer.num_frames(lengths)
        for row, count, clip in zip(features, frames, clips, strict=True):
            single = layer(clip)
            assert len(single) == count
            assert torch.allclose(row[:count], single, atol=1e-9)
            assert (row[count:] == 0).all()

    def test_normalisation(self):
        audio = noise(16000, dtype=torch.float32) * torch.linspace(0.1, 1, 16000)
        by_bin = LogMel(normalize="bin")(audio)
        assert by_bin.mean(0).abs().max() < 1e-4
        assert torch.allclose(by_bin.var(0, unbiased=False), torch.ones(80), atol=1e-3)
        by_clip = LogMel(normalize="clip")(audio)
        assert abs(by_clip.mean()) < 1e-4
        assert abs(by_clip.var(unbiased=False) - 1) < 1e-3

    @pytest.mark.parametrize("normalize", ["none", "bin", "clip"])
    @pytest.mark.parametrize("samples", [0, 1, 79, 80])
    def test_silence_and_short_clips_are_finite(self, normalize, samples):
        layer = LogMel(8000, 200, 80, 20, normalize=normalize)
        assert torch.isfinite(layer(torch.zeros(samples))).all()
        batch = layer(torch.zeros(2, 80), torch.tensor([samples, 80]))
        assert torch.isfinite(batch).all()

    def test_half_precision_computes_in_float32(self):
        audio = noise(4000, dtype=torch.float32)
        layer = LogMel(n_mels=40)
        wanted = layer(audio)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(layer(audio), wanted)
        assert layer(audio.bfloat16()).dtype == torch.float32

    def test_holds_no_state(self):
        layer = LogMel()
        assert layer.state_dict() == {}
        assert list(layer.parameters()) == []
        again = LogMel(**layer.settings)
        assert torch.equal(again.filterbank, layer.filterbank)

    def test_gradients_flow_to_audio(self):
        audio = noise(2000).requires_grad_()
        LogMel(n_mels=20).double()(audio).sum().backward()
        assert torch.isfinite(audio.grad).all()
        assert audio.grad.abs().sum() > 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"hop_length": 0}, "must be positive"),
            ({"normalize": "cmvn"}, "normalize is none, bin or clip"),
        ],
    )
    def test_errors(self, options, words):
        with pytest.raises(ConfigurationError, match=words):
            LogMel(**options)

    def test_lengths_need_zero_padding(self):
        layer = LogMel(pad_mode="reflect")
        with pytest.raises(ConfigurationError, match="reflection would depend"):
            layer(torch.zeros(2, 1000), torch.tensor([1000, 500]))


class TestGriffinLim:
    def convergence(self, signal, magnitude, n_fft, hop, window):
        rebuilt = stft(signal, n_fft, hop, window).abs()
        return float((rebuilt - magnitude).norm() / magnitude.norm())

    def test_converges_and_momentum_helps(self, make_speech):
        audio = torch.from_numpy(make_speech(1.0)).double()
        window = torch.hann_window(512, dtype=torch.float64)
        magnitude = stft(audio, 512, 128, window).abs()
        errors = {}
        for momentum in (0.0, 0.99):
            out = griffin_lim(
                magnitude, 512, 128, window, iterations=60, momentum=momentum, length=16000
            )
            assert out.shape == (16000,)
            errors[momentum] = self.convergence(out, magnitude, 512, 128, window)
        assert errors[0.99] < errors[0.0] < 0.2
        assert errors[0.99] < 0.08

    def test_seeds_and_batches(self, make_speech):
        audio = torch.from_numpy(np.stack([make_speech(0.3, seed=i) for i in range(2)]))
        window = torch.hann_window(256)
        magnitude = stft(audio, 256, 64, window).abs()
        torch.manual_seed(1)
        one = griffin_lim(magnitude, 256, 64, window, iterations=4, seed=3)
        torch.manual_seed(2)
        two = griffin_lim(magnitude, 256, 64, window, iterations=4, seed=3)
        assert torch.equal(one, two)
        assert one.shape == (2, (magnitude.shape[1] - 1) * 64)
        assert not torch.equal(one, griffin_lim(magnitude, 256, 64, window, iterations=4, seed=4))

    def test_from_log_mel(self, make_speech):
        audio = torch.from_numpy(make_speech(1.0))
        layer = LogMel(16000, 1024, 256, 80)
        features = layer(audio)
        magnitude = mel_to_magnitude(features.exp(), layer.filterbank)
        assert (magnitude >= 0).all()
        back = magnitude.square() @ layer.filterbank
        assert float((back - features.exp()).norm() / features.exp().norm()) < 0.05
        out = griffin_lim(magnitude, 1024, 256, layer.window, length=16000)
        correlation = np.corrcoef(layer(out).flatten(), features.flatten())[0, 1]
        assert correlation > 0.9

    def test_shared_recordings(self, recordings):
        path = recordings / "ljspeech/audio/LJ001-0002.flac"
        audio = torch.from_numpy(load_audio(path, sample_rate=16000))
        window = torch.hann_window(1024)
        magnitude = stft(audio, 1024, 256, window).abs()
        out = griffin_lim(magnitude, 1024, 256, window, iterations=60, length=len(audio))
        assert self.convergence(out, magnitude, 1024, 256, window) < 0.05

"""Frame counts are exact for any length; what an utterance becomes depends on itself alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.front_ends import LogMelFrontEnd, PretrainedFrontEnd
from voicehub_asr_ctc.network import LogMelNetwork, NetworkConfig
from voicehub_hf.encoders import CTC_ENCODERS
from voicehub_hf.loading import load_checkpoint

LENGTHS = [1, 2, 159, 160, 161, 400, 401, 560, 719, 720, 1119, 1120, 1279, 1280, 1281, 3333, 16000]


def audio(samples, seed=0):
    return np.random.default_rng(seed).standard_normal(samples).astype(np.float32) * 0.1


@pytest.mark.parametrize("settings", [{}, {"hop_length": 80}, {"n_fft": 400, "sample_rate": 8000}])
def test_log_mel_frames_are_exact(settings):
    config = LogMelModelConfig(n_mels=20, **settings)
    front_end = LogMelFrontEnd(config)
    sizes = NetworkConfig(20, 4, 8, 1, 3, 0, 1, 0.0, False)
    network = LogMelNetwork(sizes).eval()
    for samples in LENGTHS:
        item = front_end.prepare(audio(samples))
        produced = network(**front_end.batch([item])).logits.shape[1]
        assert produced == item.frames == front_end.padded_frames(samples)
        assert torch.isfinite(item.rows).all()
    assert front_end.frame_seconds == 2 * config.hop_length / config.sample_rate


def test_log_mel_does_not_depend_on_loudness_or_colour():
    front_end = LogMelFrontEnd(LogMelModelConfig())
    loud = front_end.prepare(audio(8000))
    quiet = front_end.prepare(audio(8000) * np.float32(0.5))
    torch.testing.assert_close(loud.rows, quiet.rows, rtol=0, atol=2e-3)
    torch.testing.assert_close(loud.rows.mean(0), torch.zeros(80), rtol=0, atol=1e-4)


def test_read_only_audio_is_not_written_to():
    wave = audio(2000)
    wave.flags.writeable = False
    before = wave.copy()
    LogMelFrontEnd(LogMelModelConfig()).prepare(wave)
    assert (wave == before).all()


@pytest.mark.parametrize("kind", sorted(CTC_ENCODERS))
def test_pretrained_frames_are_exact(kind, checkpoint_of):
    loaded = load_checkpoint(checkpoint_of(kind))
    front_end = PretrainedFrontEnd(loaded.model.config, loaded.processor)
    shortest = front_end.minimum_samples
    assert front_end.frames(shortest) >= 1
    for samples in [*LENGTHS, shortest - 1, shortest, shortest + 1]:
        item = front_end.prepare(audio(samples))
        with torch.no_grad():
            produced = loaded.model(**front_end.batch([item])).logits
        assert produced.shape[1] == item.produced, samples
        assert item.frames == front_end.padded_frames(samples), samples
        assert item.produced - 1 <= item.frames <= item.produced, samples
        assert front_end.masks_rows or item.frames == item.produced
        assert torch.isfinite(produced).all(), samples


@pytest.mark.parametrize("kind", sorted(CTC_ENCODERS))
def test_pretrained_batches_do_not_mix_utterances(kind, checkpoint_of):
    loaded = load_checkpoint(checkpoint_of(kind))
    front_end = PretrainedFrontEnd(loaded.model.config, loaded.processor)
    items = [front_end.prepare(audio(samples, samples)) for samples in (4000, 9000, 6123)]
    with torch.no_grad():
        together = loaded.model(**front_end.batch(items)).logits
        for row, item in zip(together, items, strict=True):
            alone = loaded.model(**front_end.batch([item])).logits[0]
            torch.testing.assert_close(row[: item.frames], alone[: item.frames], rtol=0, atol=2e-5)

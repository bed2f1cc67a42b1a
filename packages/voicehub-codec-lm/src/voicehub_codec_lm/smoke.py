"""What ``voicehub train codec-lm/PRESET --smoke`` trains on: tones, and tiny checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from voicehub_codec_lm import testing
from voicehub_codec_lm.codecs import CorpusCodec, CorpusCodecConfig
from voicehub_codec_lm.conformance import ARCHITECTURES
from voicehub_codec_lm.specs import DELAY, FLAT
from voicehub_data.audio import load_audio
from voicehub_data.synthetic.tones import write_tone_corpus

_RATE = 4000
_CODEC = CorpusCodecConfig(
    sample_rate=_RATE,
    hop_length=64,
    n_fft=128,
    n_mels=16,
    num_codebooks=2,
    codebook_size=8,
    iterations=8,
    griffin_lim_iterations=4,
)


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data, a codec and, where the preset names a checkpoint, a tiny one.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    train = write_tone_corpus(directory / "train", rate=_RATE)
    unseen = write_tone_corpus(directory / "unseen", clips=4, rate=_RATE, seed=1)
    wavs = sorted(train.parent.glob("*.wav"))
    clips = [torch.from_numpy(load_audio(path, sample_rate=_RATE)) for path in wavs]
    CorpusCodec.fit(clips, _CODEC).save(directory / "codec")
    settings = [
        f"data.train={train}",
        f"data.eval={unseen}",
        f"data.token_cache={directory / 'tokens'}",
        f"model.codec.path={directory / 'codec'}",
        "model.sampling.max_seconds=0.2",
    ]
    model_type, model = str(values["model_type"]), values["model"]
    if model.get("path") is None:
        sizes = ARCHITECTURES[model_type].items()
        return [*settings, *(f"model.architecture.{key}={value}" for key, value in sizes)]
    checkpoint = directory / "checkpoint"
    if model_type == FLAT:
        testing.llama(checkpoint)
    elif model_type == DELAY:
        testing.musicgen(checkpoint, _CODEC.num_codebooks, _CODEC.codebook_size)
    else:
        testing.csm(checkpoint, _CODEC.num_codebooks, _CODEC.codebook_size)
    return [*settings, f"model.path={checkpoint}"]

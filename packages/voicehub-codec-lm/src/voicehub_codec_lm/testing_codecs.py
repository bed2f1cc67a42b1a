"""Tiny random codecs of transformers, as others publish them: for tests."""

from __future__ import annotations

from pathlib import Path

import torch


def encodec(directory: Path) -> Path:
    """An EnCodec of 8 kHz with up to four codebooks of 16."""
    from transformers import EncodecConfig, EncodecModel

    torch.manual_seed(0)
    config = EncodecConfig(
        sampling_rate=8000,
        num_filters=2,
        hidden_size=8,
        codebook_dim=8,
        codebook_size=16,
        upsampling_ratios=[4, 4, 2],
        num_lstm_layers=1,
        target_bandwidths=[1.0, 2.0, 4.0],
    )
    _saved(EncodecModel(config), directory)
    return directory


def dac(directory: Path) -> Path:
    """A DAC of 8 kHz with three codebooks of 16."""
    from transformers import DacConfig, DacModel

    torch.manual_seed(0)
    config = DacConfig(
        sampling_rate=8000,
        encoder_hidden_size=4,
        downsampling_ratios=[2, 4, 4],
        decoder_hidden_size=32,
        upsampling_ratios=[4, 4, 2],
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
    )
    DacModel(config).save_pretrained(directory)
    return directory


def mimi(directory: Path) -> Path:
    """A Mimi of 8 kHz with four codebooks of 16."""
    from transformers import MimiConfig, MimiModel

    torch.manual_seed(0)
    config = MimiConfig(
        sampling_rate=8000,
        hidden_size=8,
        num_filters=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=8,
        codebook_size=16,
        codebook_dim=8,
        vector_quantization_hidden_dimension=8,
        num_quantizers=4,
        num_semantic_quantizers=1,
        upsampling_ratios=[4, 4, 2],
        upsample_groups=8,
    )
    _saved(MimiModel(config), directory)
    return directory


def xcodec2(directory: Path) -> Path:
    """An X-Codec 2 of 16 kHz: one codebook of 64."""
    from transformers import (
        Wav2Vec2BertConfig,
        Xcodec2Config,
        Xcodec2FeatureExtractor,
        Xcodec2Model,
    )

    torch.manual_seed(0)
    semantic = Wav2Vec2BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config = Xcodec2Config(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        encoder_hidden_size=2,
        quantization_dim=48,
        quantization_levels=[4, 4, 4],
        semantic_model_config=semantic.to_dict(),
    )
    Xcodec2Model(config).save_pretrained(directory)
    Xcodec2FeatureExtractor().save_pretrained(directory)
    return directory


def _saved(model: torch.nn.Module, directory: Path) -> None:
    """Save with centres at random: the classes start with all of them at 0."""
    for name, buffer in model.named_buffers():
        if name.endswith(("codebook.embed", "codebook.embed_sum")):
            buffer.copy_(torch.randn_like(buffer))
    model.save_pretrained(directory)  # type: ignore[operator]

"""Tiny random checkpoints of the five CTC classes, for tests without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub_hf.encoders import ctc_encoder, ctc_head
from voicehub_hf.export import export_ctc
from voicehub_hf.features import prepare_features
from voicehub_hf.tokenization import ctc_tokenizer

#: Settings shared by the encoders over samples: frames of 20 ms at 16 kHz, as published ones.
_WAVEFORM: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8, 8, 8, 8, 8, 8, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_bias": True,
}

_SETTINGS: dict[str, dict[str, Any]] = {
    "wav2vec2": _WAVEFORM,
    "hubert": _WAVEFORM,
    "wavlm": _WAVEFORM,
    "wav2vec2-bert": {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "output_hidden_size": 24,
        "conv_depthwise_kernel_size": 7,
    },
    "parakeet_ctc": {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "conv_kernel_size": 5,
        "subsampling_conv_channels": 8,
        "num_mel_bins": 80,
        # At the published 0.02, so narrow a model gives almost the same output for any input.
        "initializer_range": 0.2,
    },
}


def tiny_ctc_settings(model_type: str) -> dict[str, Any]:
    """Return the config settings of a tiny model of a type."""
    return dict(_SETTINGS[model_type])


def make_tiny_ctc_checkpoint(
    directory: str | Path,
    model_type: str,
    vocabulary: Sequence[str],
    seed: int = 0,
    *,
    pad_token: str = "<pad>",
    unk_token: str = "<unk>",
    word_delimiter_token: str = "|",
    **config_overrides: Any,
) -> Path:
    """Write a random model with feature extractor and tokenizer that loads like a published one.

    Args:
        directory: Created where missing.
        model_type: One of the five, see :func:`voicehub_hf.encoders.ctc_encoder`.
        vocabulary: Tokens by id; must hold the three special ones.
        seed: Of the weights; torch's global random state is left as it was.
        pad_token, unk_token, word_delimiter_token: See :func:`ctc_tokenizer`.
        **config_overrides: Settings of the encoder's config.
    """
    import torch

    tokenizer = ctc_tokenizer(
        model_type,
        vocabulary,
        pad_token=pad_token,
        unk_token=unk_token,
        word_delimiter_token=word_delimiter_token,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = tiny_ctc_model(
            model_type,
            vocab_size=len(vocabulary),
            pad_token_id=tokenizer.pad_token_id,
            **config_overrides,
        )
        extractor = tiny_feature_extractor(model.config)
        _centre_outputs(model, extractor)
    return export_ctc(model, (extractor, tokenizer), directory)


def tiny_ctc_model(
    model_type: str, *, vocab_size: int, pad_token_id: int = 0, **config_overrides: Any
) -> Any:
    """Return a random CTC model of a few thousand parameters, drawn from torch's generator."""
    import transformers

    encoder = ctc_encoder(model_type)
    settings = {**_SETTINGS[encoder.model_type], **config_overrides}
    shared: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad_token_id}
    if encoder.model_type == "parakeet_ctc":
        config = transformers.ParakeetCTCConfig(encoder_config=settings, **shared)
    else:
        # Without sentence marks of their own, ids 1 and 2 stay ordinary tokens.
        config = getattr(transformers, f"{encoder.architecture.removesuffix('ForCTC')}Config")(
            **settings, **shared, bos_token_id=None, eos_token_id=None
        )
    return getattr(transformers, encoder.architecture)(config).eval()


def tiny_feature_extractor(config: Any) -> Any:
    """Return the feature extractor that fits a config made here."""
    import transformers

    encoder = ctc_encoder(config)
    make = getattr(transformers, encoder.feature_extractor_class)
    if encoder.model_type == "wav2vec2-bert":
        stride = config.feature_projection_input_dim // 80
        return make(feature_size=80, num_mel_bins=80, stride=stride)
    if encoder.model_type == "parakeet_ctc":
        return make(feature_size=config.encoder_config.num_mel_bins)
    # As published: models with group normalisation were trained without an attention mask.
    return make(return_attention_mask=config.feat_extract_norm == "layer")


def _centre_outputs(model: Any, extractor: Any) -> None:
    """Set the head's bias so that every token wins some frames; else texts are one letter long."""
    import torch

    noise = torch.randn(16000).mul(0.1).numpy()
    with torch.no_grad():
        logits = model(
            **prepare_features(extractor, [noise], extractor.sampling_rate).inputs
        ).logits
        ctc_head(model).bias -= logits.mean((0, 1))

"""Tiny random checkpoints of the speech encoders, for tests without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from voicehub_hf.speech_encoders import speech_encoder
from voicehub_hf.testing import tiny_ctc_settings

_WHISPER: dict[str, Any] = {
    "d_model": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 16,
    "num_mel_bins": 24,
    # Two seconds at most, where published ones have thirty.
    "max_source_positions": 100,
    "vocab_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

#: Blocks of four frames, so that short clips span several; a CTC head as small as can be.
_GRANITE: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_mel_bins": 20,
    "max_position_embeddings": 8,
    "context_size": 4,
    "conv_kernel_size": 3,
    "vocab_size": 8,
}


def make_tiny_encoder_checkpoint(
    directory: str | Path, model_type: str, seed: int = 0, **config_overrides: Any
) -> Path:
    """Write a random model and feature extractor that load like published ones.

    Whisper is written with its decoder, Parakeet and Granite Speech with their CTC heads, as
    published.

    Args:
        directory: created where missing.
        model_type: of transformers; see :func:`voicehub_hf.speech_encoders.speech_encoder`.
        seed: of the weights; torch's global random state is left as it was.
        **config_overrides: settings of the model's config.
    """
    import torch
    import transformers

    encoder = speech_encoder(model_type)
    directory = Path(directory)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        if model_type == "whisper":
            config: Any = transformers.WhisperConfig(**{**_WHISPER, **config_overrides})
            model: Any = transformers.WhisperForConditionalGeneration(config)
            extractor: Any = transformers.WhisperFeatureExtractor(
                feature_size=config.num_mel_bins, chunk_length=config.max_source_positions // 50
            )
        elif model_type == "granite_speech5_ctc":
            settings = {**_GRANITE, **config_overrides}
            config = transformers.GraniteSpeech5CTCConfig(
                encoder_config=settings, vocab_size=settings["vocab_size"]
            )
            model = transformers.GraniteSpeech5ForCTC(config)
            extractor = transformers.GraniteSpeech5FeatureExtractor(
                num_mel_bins=settings["num_mel_bins"]
            )
        elif model_type == "parakeet_ctc":
            settings = {**tiny_ctc_settings(model_type), **config_overrides}
            config = transformers.ParakeetCTCConfig(
                encoder_config=settings, vocab_size=8, pad_token_id=0
            )
            model = transformers.ParakeetForCTC(config)
            extractor = transformers.ParakeetFeatureExtractor(feature_size=settings["num_mel_bins"])
        else:
            settings = {**tiny_ctc_settings(model_type), **config_overrides}
            stem = encoder.architecture.removesuffix("Model")
            config = getattr(transformers, f"{stem}Config")(**settings)
            model = getattr(transformers, encoder.architecture)(config)
            if model_type == "wav2vec2-bert":
                stride = config.feature_projection_input_dim // 80
                extractor = transformers.SeamlessM4TFeatureExtractor(
                    feature_size=80, num_mel_bins=80, stride=stride
                )
            else:
                extractor = transformers.Wav2Vec2FeatureExtractor(
                    return_attention_mask=config.feat_extract_norm == "layer"
                )
    model.eval().save_pretrained(directory)
    extractor.save_pretrained(directory)
    return directory

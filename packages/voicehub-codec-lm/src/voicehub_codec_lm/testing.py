"""Tiny random checkpoints of transformers, as others publish them: for tests and smoke runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_[]: "


def tokenizer(directory: Path) -> int:
    """Write a fast tokenizer of single characters; returns its size."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, **{symbol: place for place, symbol in enumerate(LETTERS, 1)}}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>").save_pretrained(directory)
    return len(vocabulary)


def llama(directory: Path, **settings: Any) -> Path:
    """A Llama over letters alone."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = tokenizer(directory)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(
        vocab_size=size, num_attention_heads=2, num_key_value_heads=1, **sizes, **settings
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


def musicgen_decoder(directory: Path, codebooks: int, codebook_size: int) -> Path:
    """A MusicGen decoder alone, whose vocabulary has no code for the end."""
    from transformers import MusicgenDecoderConfig, MusicgenForCausalLM

    torch.manual_seed(0)
    config = MusicgenDecoderConfig(
        vocab_size=codebook_size,
        num_codebooks=codebooks,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=48,
        pad_token_id=codebook_size,
        bos_token_id=codebook_size,
        max_position_embeddings=64,
    )
    MusicgenForCausalLM(config).save_pretrained(directory)
    return directory


def musicgen(directory: Path, codebooks: int, codebook_size: int) -> Path:
    """A whole MusicGen: text encoder of another width, decoder, codec."""
    from transformers import (
        EncodecConfig,
        MusicgenConfig,
        MusicgenDecoderConfig,
        MusicgenForConditionalGeneration,
        T5Config,
    )

    size = tokenizer(directory)
    torch.manual_seed(0)
    text = T5Config(vocab_size=size, d_model=24, d_kv=12, num_heads=2, d_ff=32, num_layers=1)
    audio = EncodecConfig(num_filters=2, hidden_size=8, codebook_dim=8, codebook_size=codebook_size)
    decoder = MusicgenDecoderConfig(
        vocab_size=codebook_size,
        num_codebooks=codebooks,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=48,
        pad_token_id=codebook_size,
        bos_token_id=codebook_size,
    )
    config = MusicgenConfig(
        text_encoder=text.to_dict(), audio_encoder=audio.to_dict(), decoder=decoder.to_dict()
    )
    MusicgenForConditionalGeneration(config).save_pretrained(directory)
    return directory


def csm(directory: Path, codebooks: int, codebook_size: int) -> Path:
    """A CSM whose end is code 0 of every codebook, as in the published one."""
    from transformers import CsmConfig, CsmForConditionalGeneration

    from voicehub_codec_lm.networks.depth import _SMALLEST_MIMI

    size = tokenizer(directory)
    torch.manual_seed(0)
    shared = {
        "num_codebooks": codebooks,
        "vocab_size": codebook_size + 3,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
    }
    depth = {**shared, "hidden_size": 16, "head_dim": 8, "backbone_hidden_size": 32}
    config = CsmConfig(
        **shared,
        hidden_size=32,
        head_dim=16,
        text_vocab_size=size,
        codebook_eos_token_id=0,
        codebook_pad_token_id=codebook_size + 2,
        depth_decoder_config={**depth, "max_position_embeddings": codebooks + 1},
        codec_config=_SMALLEST_MIMI,
    )
    CsmForConditionalGeneration(config).save_pretrained(directory)
    return directory

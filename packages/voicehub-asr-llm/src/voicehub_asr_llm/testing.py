"""Tiny random decoders and encoders, as others publish them: for tests and smoke runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

LETTERS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?!'-<>|/_:\n"
_SPECIAL = ("<unk>", "<pad>", "<start>", "<end>")

#: Templates in the manner of published ones, over the special tokens of the tokenizer here.
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<start>{{ m['role'] }}\n{{ m['content'] }}<end>\n{% endfor %}"
        "{% if add_generation_prompt %}<start>assistant\n{% endif %}"
    ),
    # Opens the answer with empty thoughts, both when it asks and when it shows the last turn.
    "thinking": (
        "{% for m in messages %}<start>{{ m['role'] }}\n"
        "{% if m['role'] == 'assistant' and loop.last %}-think-\n\n-/think-\n\n{% endif %}"
        "{{ m['content'] }}<end>\n{% endfor %}{% if add_generation_prompt %}<start>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}-think-\n\n-/think-\n\n"
        "{% endif %}{% endif %}"
    ),
    "headers": (
        "{{ bos_token }}{% for m in messages %}<start>{{ m['role'] }}|\n\n"
        "{{ m['content'] | trim }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<start>assistant|\n\n{% endif %}"
    ),
    "model-turn": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "<start>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
        "{{ m['content'] | trim }}<end>\n{% endfor %}"
        "{% if add_generation_prompt %}<start>model\n{% endif %}"
    ),
    "instructions": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
        "|INST| {{ m['content'] }} |/INST|{% elif m['role'] == 'assistant' %}"
        " {{ m['content'] }} {{ eos_token }}{% endif %}{% endfor %}"
    ),
}
#: Wide enough that a head which does not train can still be sure of a token.
_SIZES: dict[str, Any] = {
    "initializer_range": 0.25,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
#: Settings of a tiny decoder by ``model_type`` of transformers.
DECODERS: dict[str, dict[str, Any]] = {
    "llama": _SIZES,
    "qwen3": _SIZES,
    "smollm3": {**_SIZES, "no_rope_layer_interval": 2},
    "gemma3_text": {
        **_SIZES,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 16,
    },
    "gemma2": {
        **_SIZES,
        "sliding_window": 8,
        "query_pre_attn_scalar": 16,
        "final_logit_softcapping": 30.0,
    },
    "granite": {**_SIZES, "logits_scaling": 4.0},
    "qwen3_5_text": {
        **_SIZES,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
}


def tiny_tokenizer(template: str = "chatml") -> Any:
    """A fast tokenizer of single characters with a chat template of ``TEMPLATES``."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: place for place, token in enumerate((*_SPECIAL, *LETTERS))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<start>",
        eos_token="<end>",
    )
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer


def make_tiny_decoder(
    directory: str | Path,
    model_type: str = "llama",
    *,
    template: str = "chatml",
    seed: int = 0,
    **settings: Any,
) -> Path:
    """Write a random causal language model with tokenizer that loads like a published one.

    Args:
        directory: created where missing.
        model_type: of ``DECODERS``.
        template: of ``TEMPLATES``.
        seed: of the weights; torch's global random state is left as it was.
        **settings: of the model's config.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = Path(directory)
    tokenizer = tiny_tokenizer(template)
    config = AutoConfig.for_model(
        model_type,
        **{
            "vocab_size": len(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            **DECODERS[model_type],
            **settings,
        },
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory

"""A small language model that knows a corpus' sentences and nothing of sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: Turns of a conversation. Words alone are text: a mark behind the role keeps spaces out.
TEMPLATE = (
    "{% for m in messages %}<start>{{ m['role'] }}<says>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant<says>{% endif %}"
)
SPECIAL = ("<unk>", "<pad>", "<start>", "<says>", "<end>")
#: What the user's turn asks in this family's presets, with both of its spellings.
PROMPTS = (
    "Transcribe the speech to text",
    "Transcribe the speech with proper punctuation and capitalization",
)
ROLES = ("user", "assistant", "system")


def train_decoder(
    texts: Sequence[str], directory: Path, *, epochs: int = 12, seed: int = 0
) -> dict[str, float]:
    """Train a Llama of 400,000 parameters on conversations that end in one of the texts.

    Args:
        texts: sentences, of which every word becomes a token.
        directory: where model and tokenizer go, as ``save_pretrained`` of transformers writes them.
        epochs: over the texts.
        seed: of weights and order.

    Returns:
        The loss per token of the first and of the last epoch.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer(texts)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.convert_tokens_to_ids("<start>"),
            eos_token_id=tokenizer.convert_tokens_to_ids("<end>"),
            pad_token_id=tokenizer.convert_tokens_to_ids("<pad>"),
        )
    )
    rows = [_conversation(tokenizer, text) for text in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    losses: list[float] = []
    for _ in range(epochs):
        order = torch.randperm(len(rows)).tolist()
        total = 0.0
        for start in range(0, len(order), 32):
            batch = _padded([rows[i] for i in order[start : start + 32]], tokenizer.pad_token_id)
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(batch["input_ids"])
        losses.append(total / len(rows))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return {"first": losses[0], "last": losses[-1]}


def word_tokenizer(texts: Sequence[str]) -> Any:
    """A tokenizer of whole words with a chat template; spaces belong to the word behind them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in (*texts, *PROMPTS, *ROLES) for word in text.split()})
    vocabulary = {token: place for place, token in enumerate(SPECIAL)}
    vocabulary |= {f"\u2581{word}": place for place, word in enumerate(words, start=len(SPECIAL))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    # The prompt stands on a line of its own behind the audio.
    made.normalizer = normalizers.Replace("\n", " ")
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<start>",
        eos_token="<end>",
        additional_special_tokens=["<says>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _conversation(tokenizer: Any, text: str) -> list[int]:
    turns = [{"role": "user", "content": PROMPTS[0]}, {"role": "assistant", "content": text}]
    shown = tokenizer.apply_chat_template(turns, tokenize=False)
    ids: list[int] = tokenizer(shown, add_special_tokens=False)["input_ids"]
    return ids


def _padded(rows: Sequence[Sequence[int]], pad: int) -> dict[str, Any]:
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    mask = (ids != pad).long()
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }

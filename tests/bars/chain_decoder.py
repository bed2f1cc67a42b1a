"""A small language model that knows a corpus' sentences and can read, and nothing of sound."""

from __future__ import annotations

import random
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
LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: Between words, and between letters.
GAP, PAUSE = "|", "-"
IGNORED = -100


def train_decoder(
    texts: Sequence[str], directory: Path, *, epochs: int = 20, seed: int = 0
) -> dict[str, float]:
    """Train a Llama of half a million parameters to write what a user spells.

    Published decoders can copy; one from random weights has to learn it first, or it would never
    look at what stands before the prompt. So every conversation shows a text letter by letter,
    drawn out unevenly, and asks for it: one of the corpus, or its words in another order, since
    a model that only knew the sentences would guess and not read.

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
    generator = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # matrices are small, and threads would wait for one another
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    steps = epochs * -(-len(texts) // 32)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    losses: list[float] = []
    for _ in range(epochs):
        order = generator.sample(range(len(texts)), len(texts))
        total = 0.0
        for start in range(0, len(order), 32):
            said = [_mixed(texts[i], generator) for i in order[start : start + 32]]
            rows = [_conversation(tokenizer, text, generator) for text in said]
            batch = _padded(rows, tokenizer.pad_token_id)
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(texts))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return {"first": losses[0], "last": losses[-1]}


def spelled(text: str, generator: random.Random) -> str:
    """Letters of a text as sound would show them: each for one to four moments, with pauses.

    >>> spelled("go on", random.Random(0))
    'g g g - o | | | | - o o o n n n'
    """
    moments: list[str] = []
    for character in text:
        moments += [GAP if character == " " else character] * generator.choice((1, 2, 2, 3, 4))
        moments += [PAUSE] * generator.choice((0, 0, 0, 1, 2))
    return " ".join(moments)


def word_tokenizer(texts: Sequence[str]) -> Any:
    """A tokenizer of whole words with a chat template; spaces belong to the word behind them."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word for text in (*texts, *PROMPTS, *ROLES) for word in text.split()}
    listed = [*SPECIAL, *(f"\u2581{word}" for word in sorted({*words, *LETTERS, GAP, PAUSE}))]
    vocabulary = {token: place for place, token in enumerate(listed)}
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


def _mixed(text: str, generator: random.Random) -> str:
    """The text, or every second time its words in another order."""
    if generator.random() < 0.5:
        return text
    words = text.split()
    return " ".join(generator.sample(words, len(words)))


def _conversation(
    tokenizer: Any, text: str, generator: random.Random
) -> tuple[list[int], list[int]]:
    """Tokens, and the labels: of the assistant's turn alone."""
    question = {"role": "user", "content": f"{spelled(text, generator)}\n{PROMPTS[0]}"}
    asked = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
    before = tokenizer(asked, add_special_tokens=False)["input_ids"]
    answer = tokenizer(f"{text}<end>", add_special_tokens=False)["input_ids"]
    return [*before, *answer], [*[IGNORED] * len(before), *answer]


def _padded(rows: Sequence[tuple[list[int], list[int]]], pad: int) -> dict[str, Any]:
    import torch

    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row, _ in rows])
    labels = torch.tensor([[*row, *[IGNORED] * (longest - len(row))] for _, row in rows])
    return {"input_ids": ids, "attention_mask": (ids != pad).long(), "labels": labels}

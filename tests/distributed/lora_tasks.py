"""Low-rank adapters of peft on an encoder of transformers; a module, since ranks import it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rank_tasks import UNHURRIED, result
from recipes import arguments, seeded
from torch import Tensor, nn

from voicehub.trainer.trainer import Trainer


class Waves(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Noise of unequal lengths with two labels each."""

    deterministic = True

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.items = [
            {
                "input_values": torch.randn(1600 + 320 * (n % 3), generator=generator).double(),
                "labels": torch.randint(1, 8, (2,), generator=generator),
            }
            for n in range(size)
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.items[index]


def collate(items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Pad waves (batch, samples) and mark what is real."""
    waves = [item["input_values"] for item in items]
    pad = nn.utils.rnn.pad_sequence
    return {
        "input_values": pad(waves, batch_first=True),
        "attention_mask": pad([torch.ones(len(wave)).long() for wave in waves], batch_first=True),
        "labels": torch.stack([item["labels"] for item in items]),
    }


def _build() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    from voicehub_hf.lora import add_lora
    from voicehub_hf.testing import tiny_ctc_settings

    off = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout")
    quiet = {
        **dict.fromkeys((*off, "final_dropout", "layerdrop"), 0.0),
        "apply_spec_augment": False,
    }
    model: nn.Module = Wav2Vec2ForCTC(
        Wav2Vec2Config(
            **tiny_ctc_settings("wav2vec2"), **quiet, vocab_size=8, ctc_zero_infinity=True
        )
    )
    return add_lora(model, rank=2, alpha=4).double()


def train(
    directory: Path, run: dict[str, Any], resume_from: Path | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Train the adapters and the head; the ``result``, and what was trainable by its start."""
    model = seeded(_build)
    start = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    trainer = Trainer(
        model=model,
        args=arguments(directory, **{"ddp_timeout": UNHURRIED, **run}),
        data_collator=collate,
        train_dataset=Waves(10),
    )
    trainer.train(resume_from_checkpoint=resume_from)
    return result(trainer), start

"""One step of a codec language model beside a plain PyTorch loop over the same modules.

``codec-lm/tiny``, a decoder over four delayed codebooks of 1,024, at batch 8 on utterances of 3 to
6 seconds that the benchmark makes for itself. After each step of the Trainer a loop as one writes
it by hand makes one of its own on a copy of the same network and the same batch: the logits of
every codebook and ``cross_entropy``, the mean over the codebooks, and the same fused AdamW,
schedule and clipping.

Run it alone with ``python benchmarks/codec_lm_step.py [--steps 20 --json]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from harness.beside import BATCH, LossOf, Steps, run_command, steps_beside
from harness.corpus import write_corpus
from torch import Tensor, nn
from torch.nn import functional

from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.codecs import CorpusCodec, CorpusCodecConfig
from voicehub_codec_lm.experiment import build_experiment
from voicehub_data.audio import load_audio

RATE = 8000
CODEBOOKS, CODES = 4, 1024


def make_codec(folder: Path, codes: int) -> Path:
    """A codec of the corpus' own sounds."""
    clips = [
        torch.from_numpy(load_audio(path, sample_rate=RATE))
        for path in sorted(folder.glob("*.wav"))
    ]
    settings = CorpusCodecConfig(
        sample_rate=RATE, num_codebooks=CODEBOOKS, codebook_size=codes, iterations=4
    )
    place = folder / "codec"
    CorpusCodec.fit(clips, settings).save(place)
    return place


def measure(
    steps: int,
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    batch: int = BATCH,
    codes: int = CODES,
) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, batch, rate=RATE)
    own = [
        f"data.train={manifest}",
        f"data.token_cache={folder / 'tokens'}",
        f"model.codec.path={make_codec(folder, codes)}",
        *overrides,
    ]
    return steps_beside(
        "codec-lm/tiny", own, build_experiment, by_hand, folder=folder, steps=steps, batch=batch
    )


def by_hand(config: Any, experiment: Any) -> LossOf:
    """The mean over the codebooks of the cross-entropy of their logits."""

    def loss_of(module: nn.Module, inputs: Any) -> Tensor:
        labels: Tensor = inputs["labels"]  # (batch, codebooks, steps)
        condition = module.condition(  # type: ignore[operator]
            inputs["prompt_ids"], inputs["prompt_mask"], inputs["keep"]
        )
        decoder: Any = module.decoder
        states = decoder.model(
            input_ids=inputs["codes"].reshape(-1, labels.shape[2]),
            encoder_hidden_states=condition,
            encoder_attention_mask=inputs["prompt_mask"],
            use_cache=False,
        ).last_hidden_state
        logits = torch.stack([head(states) for head in decoder.lm_heads], dim=1)
        losses = [
            functional.cross_entropy(
                logits[:, book].flatten(0, 1), labels[:, book].flatten(), ignore_index=IGNORED
            )
            for book in range(labels.shape[1])
        ]
        return torch.stack(losses).mean()

    return loss_of


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(measure, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

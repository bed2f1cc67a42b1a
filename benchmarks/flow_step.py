"""One step of flow-matching text to speech beside a plain PyTorch loop over the same modules.

``flow/tiny-tts`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself,
without the averaged weights. After each step of the Trainer a loop as one writes it by hand makes
one of its own on a copy of the same network and the same batch: the point on the path, the target,
all squared errors and their mean over the frames that are to be filled in, and the same fused
AdamW, schedule and clipping.

Run it alone with ``python benchmarks/flow_step.py [--steps 20 --json]``.
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

from voicehub_flow.tts.experiment import build_experiment


def measure(
    steps: int, folder: Path, overrides: Sequence[str] = (), *, batch: int = BATCH
) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, batch, rate=8000)
    own = [
        f"data.train={manifest}",
        "training.lr_scheduler_type=linear",
        "training.ema_decay=null",
        "training.eval_weights=raw",
        *overrides,
    ]
    return steps_beside(
        "flow/tiny-tts", own, build_experiment, by_hand, folder=folder, steps=steps, batch=batch
    )


def by_hand(config: Any, experiment: Any) -> LossOf:
    """The mean squared error of the velocity over the frames that are to be filled in."""
    sigma = config.model.objective.min_sigma

    def loss_of(module: nn.Module, inputs: Any) -> Tensor:
        mel, noise, span = inputs["mel"], inputs["noise"], inputs["span_mask"]
        time = inputs["time"][:, None, None]
        noisy = (1 - (1 - sigma) * time) * noise + time * mel
        target = mel - (1 - sigma) * noise
        velocity = module(
            noisy,
            mel.masked_fill(span[..., None], 0.0),
            inputs["time"],
            inputs["input_ids"],
            inputs["text_lengths"],
            inputs["frame_lengths"],
            speakers=inputs["speaker_ids"],
            drop_audio=inputs["drop_audio"],
            drop_text=inputs["drop_text"],
        )
        places = torch.arange(span.shape[1])
        asked = span & (places < inputs["frame_lengths"][:, None])
        return functional.mse_loss(velocity, target, reduction="none")[asked].mean()

    return loss_of


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(measure, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

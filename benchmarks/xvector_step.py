"""One step of a speaker embedder beside a plain PyTorch loop over the same modules.

``xvector/tiny`` at batch 8 on utterances of 3 to 6 seconds of four speakers, which the benchmark
makes for itself, without SpecAugment, copies at other speeds and averaged weights. After each step
of the Trainer a loop as one writes it by hand makes one of its own on a copy of the same network
and the same batch: normalised embeddings and prototypes, all cosines, the margin on the right
ones, ``cross_entropy``, and the same fused AdamW, schedule and clipping.

Run it alone with ``python benchmarks/xvector_step.py [--steps 20 --json]``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from harness.beside import BATCH, LossOf, Steps, run_command, steps_beside
from harness.corpus import write_corpus
from torch import Tensor, nn
from torch.nn import functional

from voicehub_xvector.data.collate import OBJECTIVE_KEYS
from voicehub_xvector.experiment import build_experiment

SPEAKERS = 4


def measure(
    steps: int, folder: Path, overrides: Sequence[str] = (), *, batch: int = BATCH
) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, batch, rate=8000, speakers=min(SPEAKERS, batch))
    own = [
        f"data.train={manifest}",
        "data.speed_speakers=[]",
        "data.augment.spec_augment=null",
        "model.loss.margin_warmup=0",
        "training.ema_decay=null",
        "training.eval_weights=raw",
        *overrides,
    ]
    return steps_beside(
        "xvector/tiny", own, build_experiment, by_hand, folder=folder, steps=steps, batch=batch
    )


def by_hand(config: Any, experiment: Any) -> LossOf:
    """Additive angular margin softmax as textbooks write it."""
    scale, margin = config.model.loss.scale, config.model.loss.margin

    def loss_of(module: nn.Module, inputs: Any) -> Tensor:
        taken = {key: value for key, value in inputs.items() if key not in OBJECTIVE_KEYS}
        loss: Any = module.loss
        cosines = functional.linear(
            functional.normalize(module(**taken)), functional.normalize(loss.weight)
        )
        sines = (1.0 - cosines.square()).clamp_min(1e-12).sqrt()
        harder = cosines * math.cos(margin) - sines * math.sin(margin)
        beyond = cosines > math.cos(math.pi - margin)
        harder = torch.where(beyond, harder, cosines - margin * math.sin(margin))
        right = functional.one_hot(inputs["labels"], cosines.shape[1]).bool()
        return functional.cross_entropy(
            scale * torch.where(right, harder, cosines), inputs["labels"]
        )

    return loss_of


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(measure, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

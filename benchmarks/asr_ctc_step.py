"""One step of a CTC recogniser beside a plain PyTorch loop over the same modules.

``asr-ctc/tiny`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself.
After each step of the Trainer a loop as one writes it by hand makes one of its own on a copy of the
same network and the same batch, with ``log_softmax`` and torch's ``ctc_loss`` on both outputs of
the network, the same fused AdamW, schedule and clipping.

Run it alone with ``python benchmarks/asr_ctc_step.py [--steps 20 --json]``.
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

from voicehub_asr_ctc.data.collate import OBJECTIVE_KEYS
from voicehub_asr_ctc.experiment import build_experiment


def measure(
    steps: int, folder: Path, overrides: Sequence[str] = (), *, batch: int = BATCH
) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, batch, rate=16000)
    return steps_beside(
        "asr-ctc/tiny",
        [f"data.train={manifest}", *overrides],
        build_experiment,
        by_hand,
        folder=folder,
        steps=steps,
        batch=batch,
    )


def by_hand(config: Any, experiment: Any) -> LossOf:
    """CTC on both outputs of the network, as its configuration weighs them."""
    blank = experiment.model.tokenizer.blank_id
    weight = config.model.intermediate_weight

    def loss_of(module: nn.Module, inputs: Any) -> Tensor:
        taken = {key: value for key, value in inputs.items() if key not in OBJECTIVE_KEYS}
        output = module(**taken)
        targets = (
            inputs["labels"],
            torch.tensor(list(inputs["frame_lengths"])),
            torch.tensor(list(inputs["label_lengths"])),
        )

        def ctc(logits: Tensor) -> Tensor:
            log_probs = functional.log_softmax(logits, dim=-1).transpose(0, 1)
            return functional.ctc_loss(log_probs, *targets, blank=blank)

        final = ctc(output.logits)
        if not weight:
            return final
        return (1.0 - weight) * final + weight * ctc(output.intermediate_logits)

    return loss_of


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(measure, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

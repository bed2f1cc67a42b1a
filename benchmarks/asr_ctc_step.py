"""One step of a CTC recogniser beside a plain PyTorch loop over the same modules.

``asr-ctc/tiny`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself.
After each step of the Trainer a loop as one writes it by hand makes one of its own on a copy of the
same network and the same batch, with ``log_softmax`` and torch's ``ctc_loss`` on both outputs of
the network, the same fused AdamW, schedule and clipping.

Run it alone with ``python benchmarks/asr_ctc_step.py [--steps 20 --json]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from harness.beside import Steps, configuration, steps_beside
from harness.corpus import write_corpus
from harness.report import step_table
from torch import Tensor, nn
from torch.nn import functional

from voicehub_asr_ctc.data.collate import OBJECTIVE_KEYS
from voicehub_asr_ctc.experiment import build_experiment

BATCH = 8
WARM_UP = 2


def measure(steps: int, folder: Path, overrides: Sequence[str] = ()) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, BATCH, rate=16000)
    own = [f"data.train={manifest}", *overrides]
    config = configuration("asr-ctc/tiny", folder, steps + WARM_UP, own)
    experiment = build_experiment(config)
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

    return steps_beside(config, experiment, loss_of, size=BATCH, warm_up=WARM_UP)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.steps, Path(folder))
    print(step_table(found.ours, found.plain))
    if options.json:
        print(json.dumps(found.as_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

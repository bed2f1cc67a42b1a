"""One step of flow-matching text to speech beside a plain PyTorch loop over the same modules.

``flow/tiny-tts`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself,
without the averaged weights. After each step of the Trainer a loop as one writes it by hand makes
one of its own on a copy of the same network and the same batch: the point on the path, the target,
all squared errors and their mean over the frames that are to be filled in, and the same fused
AdamW, schedule and clipping.

Run it alone with ``python benchmarks/flow_step.py [--steps 20 --json]``.
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

from voicehub_flow.tts.experiment import build_experiment

BATCH = 8
WARM_UP = 2


def measure(steps: int, folder: Path, overrides: Sequence[str] = ()) -> Steps:
    """Both loops, warm-up left out."""
    manifest = write_corpus(folder, BATCH, rate=8000)
    own = [
        f"data.train={manifest}",
        "training.lr_scheduler_type=linear",
        "training.ema_decay=null",
        "training.eval_weights=raw",
        *overrides,
    ]
    config = configuration("flow/tiny-tts", folder, steps + WARM_UP, own)
    experiment = build_experiment(config)
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

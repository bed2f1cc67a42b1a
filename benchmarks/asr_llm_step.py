"""One step of an LLM recogniser with adapters beside a plain PyTorch loop over the same modules.

``asr-llm/tiny`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself: a
frozen encoder, a projector, and adapters of rank 16 on a random Llama of four layers whose
vocabulary has 8,192 tokens. After each step of the Trainer a loop as one writes it by hand makes
one of its own on a copy of the same network and the same padded batch: projected frames written
over the embeddings, the decoder's logits of every step, their cross-entropy, and the same fused
AdamW, schedule and clipping.

Run it alone with ``python benchmarks/asr_llm_step.py [--steps 20 --json]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from harness.beside import BATCH, Steps, run_command, steps_beside
from harness.corpus import write_corpus
from torch import Tensor, nn
from torch.nn import functional

from voicehub_asr_llm.data.collate import AUDIO
from voicehub_asr_llm.experiment import build_experiment
from voicehub_asr_llm.testing import make_tiny_decoder
from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint


def measure(
    steps: int,
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    batch: int = BATCH,
    width: int = 256,
    vocabulary: int = 8192,
) -> Steps:
    """Both loops, warm-up left out; ``width`` and ``vocabulary`` are the decoder's."""
    manifest = write_corpus(folder, batch, rate=16000)
    encoder = make_tiny_encoder_checkpoint(folder / "encoder", "granite_speech5_ctc")
    decoder = make_tiny_decoder(
        folder / "decoder",
        initializer_range=0.05,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=width // 4,
        vocab_size=vocabulary,
    )
    own = [
        f"data.train={manifest}",
        "data.packing=none",
        f"model.encoder.path={encoder}",
        f"model.decoder.path={decoder}",
        "model.decoder.lora={rank: 16, alpha: 16}",
        # The plain loop has one rate and one decay.
        "model.projector.learning_rate=null",
        "model.projector.weight_decay=null",
        "training.lr_scheduler_type=linear",
        *overrides,
    ]
    return steps_beside(
        "asr-llm/tiny",
        own,
        build_experiment,
        lambda config, experiment: loss_by_hand,
        folder=folder,
        steps=steps,
        batch=batch,
    )


def loss_by_hand(module: nn.Module, inputs: Any) -> Tensor:
    """The mean cross-entropy of a padded batch, an utterance a row."""
    parts: Any = module
    parts.encoder.eval()
    with torch.no_grad():
        states = parts.encoder(inputs["audio"], inputs["audio_lengths"], inputs["row_counts"])
    outputs = parts.projector(states, inputs["audio_frames"]).outputs
    counts = torch.tensor(inputs["placeholders"])
    spoken = torch.arange(outputs.shape[1]) < counts[:, None]
    decoder = parts.decoder.get_base_model()
    places = inputs["input_ids"] == AUDIO
    embedded = decoder.get_input_embeddings()(inputs["input_ids"].masked_fill(places, 0))
    embedded = embedded.masked_scatter(places[..., None], outputs[spoken])
    # Padding stands behind, where causal attention does not look.
    logits = decoder(inputs_embeds=embedded, use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(measure, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())

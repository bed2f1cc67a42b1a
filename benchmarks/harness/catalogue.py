"""Every side-by-side measurement of the project, in the order in which the bench runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import convert
from harness.convert import Converted


@dataclass(frozen=True)
class Entry:
    """A script and what to do with what it prints.

    Attributes:
        name: of the case.
        title: one line.
        script: file in ``benchmarks/`` that ends with one JSON object when given ``--json``.
        how: what is equal in all systems, and how it was measured.
        convert: from that object to measures and facts.
        quick: arguments of a trial run.
        arguments: arguments of a real run.
        needs: modules without which there is nothing to compare.
        data: name of the folder of recordings that is the script's first argument.
    """

    name: str
    title: str
    script: str
    how: str
    convert: Callable[[dict[str, Any]], Converted]
    quick: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    data: str | None = None


_STEP = (
    "After each step of the Trainer, a loop as one writes it by hand makes one on a copy of the "
    "same network with the same batch, optimiser, schedule, clipping and check for finite "
    "gradients. CPU time on one thread; reading the batch is in neither."
)

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        "startup",
        "Import and start-up",
        "startup.py",
        "CPU time of fresh interpreters, one of each in every round. Ours load no torch until a "
        "model is asked for: a run that trains pays for torch's import later, as all others do.",
        convert.startup,
        ("--rounds", "1"),
        ("--rounds", "5"),
    ),
    Entry(
        "trainer-overhead",
        "What a trainer adds to a step",
        "trainer_overhead.py",
        "Five systems train the same small model (three layers of 64, batches of 8) on the same "
        "data with AdamW, a linear schedule, clipping, a check for non-finite values and a log "
        "every 100 steps. CPU time from batch to batch on one thread.",
        convert.trainer_overhead,
        ("--steps", "200", "--rounds", "1"),
        needs=("transformers", "lightning", "speechbrain", "voicehub_xvector"),
    ),
    Entry(
        "recipe-overhead",
        "What a recipe of two phases and 1,000 modules adds to a step",
        "recipe_overhead.py",
        "A GAN of 1,000 tiny modules, the discriminator stepped before the generator's forward; "
        "both loops must log the same losses. CPU time on one thread.",
        convert.recipe_overhead,
        ("--modules", "100", "--steps", "20", "--rounds", "1"),
    ),
    Entry(
        "checkpoint",
        "A checkpoint of 50 million parameters with AdamW state",
        "checkpoint_saving.py",
        "How long a save holds the training thread, and how long until every file is hashed, "
        "synced and in place, beside `torch.save` of the same state and an fsync. Wall time, one "
        "disk, the disk cache levelled before each.",
        convert.checkpoint,
        ("--rounds", "1", "--layers", "2"),
    ),
    Entry(
        "resume",
        "Resume at step 100,000, in the middle of an epoch of a million samples",
        "resume_time.py",
        "CPU time from the call of `train` to the first batch, which must be the one that an "
        "uninterrupted run reads next. Step 0 shows what a start costs without any position.",
        convert.resume,
        ("--samples", "20000", "--rounds", "1"),
        needs=("transformers",),
    ),
    Entry(
        "batch-plan",
        "Batches of LibriSpeech's durations under a cap of 200 padded seconds",
        "batch_plan.py",
        "281,241 durations drawn from a log-normal distribution (mean 12.3 s as in LibriSpeech's "
        "960 hours, sigma 0.5, clipped to 1-35 s). Waste is the share of all padded seconds that "
        "holds no speech; throughput that of a small network of two layers. Only ours and "
        "transformers' batches of 5 keep the cap.",
        convert.batch_plan,
        ("--items", "3000", "--rounds", "1", "--epochs", "5"),
        ("--rounds", "3"),
        needs=("transformers", "lhotse"),
    ),
    Entry(
        "losses",
        "Losses with kernels of their own, on the CPU",
        "losses.py",
        "Loss and gradients of the same tensors, one thread, wall time; peak memory above what "
        "the inputs take.",
        convert.losses,
        ("--rounds", "1"),
        needs=("voicehub_vits", "voicehub_asr_ctc", "monotonic_alignment_search"),
    ),
    Entry(
        "aam-softmax",
        "AAM softmax over 100,000 speakers",
        "aam_softmax.py",
        "Loss and gradients of 64 embeddings and 100,000 prototypes of 192; all systems must find "
        "the same ones. Wall time on one thread; resident memory in processes of their own.",
        convert.aam_softmax,
        ("--classes", "2000", "--rounds", "1", "--threads", "1"),
        ("--threads", "1"),
        needs=("voicehub_xvector", "speechbrain"),
    ),
    Entry(
        "asr-ctc-step",
        "A step of a CTC recogniser",
        "asr_ctc_step.py",
        f"`asr-ctc/tiny`, 8 utterances of 3 to 6 s. {_STEP}",
        convert.step,
        ("--steps", "2"),
        needs=("voicehub_asr_ctc",),
    ),
    Entry(
        "asr-llm-step",
        "A step of an LLM recogniser with adapters",
        "asr_llm_step.py",
        "`asr-llm/tiny` with adapters of rank 16 on a Llama of four layers of 256 and 8,192 "
        f"tokens, 8 utterances of 3 to 6 s, padded. {_STEP}",
        convert.step,
        ("--steps", "2"),
        needs=("voicehub_asr_llm",),
    ),
    Entry(
        "codec-lm-step",
        "A step of a codec language model",
        "codec_lm_step.py",
        f"`codec-lm/tiny`, four codebooks of 1,024, 8 utterances of 3 to 6 s. {_STEP}",
        convert.step,
        ("--steps", "2"),
        needs=("voicehub_codec_lm", "transformers"),
    ),
    Entry(
        "flow-step",
        "A step of flow-matching text to speech",
        "flow_step.py",
        f"`flow/tiny-tts`, 8 utterances of 3 to 6 s, without averaged weights. {_STEP}",
        convert.step,
        ("--steps", "2"),
        needs=("voicehub_flow",),
    ),
    Entry(
        "vits-step",
        "A step of VITS, both phases",
        "vits_step.py",
        "`vits/tiny`, 8 utterances of 3 to 6 s, beside a loop as published trainers are written: "
        "the Cython alignment search, the discriminators called for recorded and generated audio "
        "in turn. CPU time on one thread.",
        convert.vits_step,
        ("--steps", "1"),
        ("--steps", "20"),
        needs=("voicehub_vits", "monotonic_alignment_search"),
    ),
    Entry(
        "xvector-step",
        "A step of a speaker embedder",
        "xvector_step.py",
        "`xvector/tiny`, 8 utterances of 3 to 6 s of four speakers, without averaged weights. "
        f"{_STEP}",
        convert.step,
        ("--steps", "2"),
        needs=("voicehub_xvector",),
    ),
    Entry(
        "xvector-throughput",
        "An epoch of a speaker model at equal peak memory",
        "xvector_throughput.py",
        "1,800 recordings of spoken digits, the same network, features and optimiser: our capped "
        "batches, random ones of as many recordings as need no more memory, and speechbrain's "
        "`Brain.fit` with random and with its own dynamic batches. Wall time.",
        convert.xvector_throughput,
        ("--rounds", "1", "--recordings", "64"),
        needs=("voicehub_xvector", "speechbrain"),
        data="fsdd",
    ),
)

RIVALS = (
    "torch",
    "numpy",
    "transformers",
    "accelerate",
    "lightning",
    "speechbrain",
    "lhotse",
    "monotonic-alignment-search",
)
"""Distributions whose versions stand with the results."""


def by_name() -> dict[str, Entry]:
    """Entries by their names."""
    return {entry.name: entry for entry in CATALOGUE}

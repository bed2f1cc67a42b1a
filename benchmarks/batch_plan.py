"""Padding, throughput and order of batches under a cap of 200 padded seconds.

The durations are drawn, not read: log-normal and clipped to 1-35 s, in number and mean those of
LibriSpeech's 960 hours of training data (281,241 utterances, 12.3 s in the mean after clipping).
Those of LibriSpeech lie closer together (most between 10 and 17 s, which would be a sigma of about
0.3); sigma is 0.5 here, which is harder, and 0.31 and 0.7 are looked at too.

* ``voicehub``: ``DurationBucketedPlan`` with its defaults.
* ``transformers``: ``LengthGroupedSampler``, which knows no cap: with the most utterances that keep
  it whatever they are (5), and with as many as fill it in the mean (16), which breaks it.
* ``lhotse``: ``DynamicBucketingSampler`` with its default of 10 buckets, with 30, and with as many
  as ours takes. Its buffer holds 20,000 cuts, its default.

Padding waste is the share of a batch's rectangle that holds no speech, over a whole epoch.
Throughput is seconds of speech a CPU second through a small network of two layers, forward and
backward, over batches of the epoch that are spread evenly over its lengths. Planning is the time
from an epoch's number to its list of batches. Order: three tests of randomness over many epochs of
fewer utterances; a p-value under the level says that the order of batches is not random.

Run it alone with ``python benchmarks/batch_plan.py [--items 281241 --rounds 5 --json]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import order_tests
import torch
from harness.interleaving import interleave

from voicehub.data.plan import DurationBucketedPlan

LIBRISPEECH = 281_241
MEAN, SIGMA, SHORTEST, LONGEST = 12.3, 0.5, 1.0, 35.0
CAP = 200.0
LEVEL = 0.01
FRAMES_A_SECOND, BANDS = 25, 16

Lengths = np.ndarray[Any, np.dtype[np.float64]]
Plan = Callable[[int], list[list[int]]]
"""From an epoch's number to its batches."""


def durations(items: int, sigma: float = SIGMA, seed: int = 0) -> tuple[Lengths, float]:
    """Seconds of every utterance, and the log-normal's mu that gives them their mean."""
    draws = np.random.Generator(np.random.PCG64(seed)).standard_normal(items)
    low, high = math.log(SHORTEST), math.log(LONGEST)
    for _ in range(60):
        mu = (low + high) / 2
        mean = float(np.exp(mu + sigma * draws).clip(SHORTEST, LONGEST).mean())
        low, high = (mu, high) if mean < MEAN else (low, mu)
    return np.exp(mu + sigma * draws).clip(SHORTEST, LONGEST), mu


def ours(lengths: Lengths) -> Plan:
    """``DurationBucketedPlan``; one is made anew every time, as nothing of it is to be kept."""
    return lambda epoch: DurationBucketedPlan(lengths, CAP).batches(epoch)


def length_grouped(lengths: Lengths, size: int) -> Plan:
    """transformers' ``LengthGroupedSampler``."""
    from transformers.trainer_pt_utils import LengthGroupedSampler

    values = lengths.tolist()

    def batches(epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(epoch)
        order = list(LengthGroupedSampler(size, lengths=values, generator=generator))
        return [order[at : at + size] for at in range(0, len(order), size)]

    return batches


def lhotse_buckets(lengths: Lengths, buckets: int) -> Plan:
    """lhotse's ``DynamicBucketingSampler`` over cuts that lie in memory."""
    from lhotse import CutSet, MonoCut
    from lhotse.dataset.sampling import DynamicBucketingSampler

    warnings.filterwarnings("ignore", message="You are using DynamicBucketingSampler")
    cuts = CutSet.from_cuts(
        MonoCut(id=str(number), start=0, duration=float(seconds), channel=0)
        for number, seconds in enumerate(lengths)
    )

    def batches(epoch: int) -> list[list[int]]:
        sampler = DynamicBucketingSampler(
            cuts, max_duration=CAP, num_buckets=buckets, shuffle=True, seed=0
        )
        sampler.set_epoch(epoch)
        return [[int(cut.id) for cut in batch] for batch in sampler]

    return batches


def systems(lengths: Lengths) -> dict[str, Plan]:
    """All that are installed, by name."""
    found = {"voicehub": ours(lengths)}
    if importlib.util.find_spec("transformers"):
        found["transformers, 5 a batch"] = length_grouped(lengths, 5)
        found["transformers, 16 a batch"] = length_grouped(lengths, 16)
    if importlib.util.find_spec("lhotse"):
        found["lhotse, 10 buckets"] = lhotse_buckets(lengths, 10)
        found["lhotse, 30 buckets"] = lhotse_buckets(lengths, 30)
        as_many = DurationBucketedPlan(lengths, CAP).num_buckets
        found["lhotse, as many buckets"] = lhotse_buckets(lengths, as_many)
    return found


def padded(batch: Sequence[int], lengths: Lengths) -> float:
    """Seconds of a batch's rectangle."""
    return len(batch) * float(lengths[list(batch)].max())


def waste(batches: Sequence[Sequence[int]], lengths: Lengths) -> float:
    """Share of all rectangles that holds no speech.

    Raises:
        ValueError: the batches do not hold every utterance once.
    """
    items = [item for batch in batches for item in batch]
    if sorted(items) != list(range(len(lengths))):
        raise ValueError(f"{len(items)} utterances in the batches of {len(lengths)}: not each once")
    return 1.0 - float(lengths.sum()) / sum(padded(batch, lengths) for batch in batches)


def order_of(plan: Plan, lengths: Lengths, epochs: int) -> dict[str, float]:
    """P-values that the order of batches is random, over so many epochs."""
    means = [[float(lengths[batch].mean()) for batch in plan(epoch)] for epoch in range(epochs)]
    return order_tests.verdicts(means)


class Throughput:
    """Seconds of speech a CPU second, over the same number of batches of every system."""

    def __init__(self, lengths: Lengths, count: int) -> None:
        torch.manual_seed(0)
        self.lengths, self.count = lengths, count
        # No convolutions: on the CPU each new shape costs them a compilation, which is not padding.
        self.network = torch.nn.Sequential(
            torch.nn.Linear(BANDS, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)
        )

    def __call__(self, batches: Sequence[Sequence[int]]) -> float:
        # Evenly spread: long batches of few and short ones of many differ in speed.
        ranked = sorted(batches, key=lambda batch: float(self.lengths[list(batch)].max()))
        places = np.linspace(0, len(ranked) - 1, min(self.count, len(ranked))).round().astype(int)
        speech, spent = 0.0, 0.0
        for at in np.random.Generator(np.random.PCG64(0)).permutation(places):
            batch = ranked[at]
            frames = max(1, round(float(self.lengths[batch].max()) * FRAMES_A_SECOND))
            features = torch.randn(len(batch), frames, BANDS)
            began = time.process_time()
            self.network(features).square().mean().backward()
            spent += time.process_time() - began
            speech += float(self.lengths[batch].sum())
        return speech / spent


def measure(items: int, rounds: int, epochs: int, batches_timed: int = 150) -> dict[str, Any]:
    """All figures, by system."""
    lengths, mu = durations(items)
    plans = systems(lengths)
    made = {name: plan(0) for name, plan in plans.items()}
    planning = interleave(
        {name: partial(plan, 1) for name, plan in plans.items()},
        rounds,
        warm_up=False,
        clock=time.process_time,
    )
    run = Throughput(lengths, batches_timed)
    speeds = interleave({name: partial(run, batches) for name, batches in made.items()}, rounds)
    fewer, _ = durations(min(items, 12_000))
    orders = {name: order_of(plan, fewer, epochs) for name, plan in systems(fewer).items()}
    return {
        "items": items,
        "mu": mu,
        "sigma": SIGMA,
        "cap": CAP,
        "epochs_of_order": epochs,
        "buckets": DurationBucketedPlan(lengths, CAP).num_buckets,
        "systems": {
            name: {
                "waste": waste(batches, lengths),
                "most_padded_seconds": max(padded(batch, lengths) for batch in batches),
                "batches": len(batches),
                "planning_seconds": planning[name],
                "speech_per_cpu_second": speeds[name],
                "order": orders.get(name, {}),
            }
            for name, batches in made.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=LIBRISPEECH)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60, help="whose order is tested")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.items < 1000 or options.rounds < 1 or options.epochs < 5:
        parser.error("needs --items >= 1000, --rounds >= 1 and --epochs >= 5")
    torch.set_num_threads(1)
    found = measure(options.items, options.rounds, options.epochs)
    print(f"{options.items:,} utterances, cap {CAP:g} s, {found['buckets']} buckets of ours")
    heads = ("waste", "most padded s", "batches", "planning s", "speech s/CPU s", "order p")
    print(f"{'system':26}" + "".join(f"{head:>15}" for head in heads))
    for name, row in found["systems"].items():
        order = min(row["order"].values()) if row["order"] else float("nan")
        print(
            f"{name:26}{row['waste']:15.2%}{row['most_padded_seconds']:15.1f}{row['batches']:15d}"
            f"{statistics.median(row['planning_seconds']):15.2f}"
            f"{statistics.median(row['speech_per_cpu_second']):15.0f}{order:15.2g}"
        )
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

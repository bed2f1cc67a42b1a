"""Throughput of one training epoch of a speaker model on fsdd, at equal peak memory.

Four ways through the same 1,800 recordings with the same network, features, optimiser and clipping:

* voicehub, bucketed: batches of similar length under a cap on padded seconds (the preset's);
* voicehub, fixed: random batches of a fixed number of recordings;
* speechbrain, fixed: its ``Brain.fit``, random batches of as many;
* speechbrain, dynamic: its ``Brain.fit`` with its own ``DynamicBatchSampler`` under the same cap.

The fixed number is the largest whose peak of allocations over an epoch, by torch's profiler, is not
above that of the bucketed batches. Nothing is kept between epochs: every epoch decodes and computes
features anew. The ways are interleaved: in every round each trains one epoch, in turning order;
figures are medians over the rounds, ratios those of ratios within a round.

Run it alone with ``python benchmarks/xvector_throughput.py DATA [--rounds 5 --json]`` (DATA: a
folder with fsdd's manifests).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from allocations import peak_bytes
from harness.interleaving import interleave, ratio
from speechbrain_speakers import TRAIN_SPEAKERS, make_brain, preset_config, speechbrain_dataset

from voicehub import Trainer, TrainerCallback
from voicehub.data.plan import FixedSizePlan
from voicehub_xvector.data import XVectorDataset
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.experiment import build_experiment
from voicehub_xvector.speechbrain_parts import speechbrain_part

Epoch = Callable[[], float]
"""Trains one epoch from fresh weights and returns its seconds."""

OVERRIDES = (
    "data.speed_speakers=[]",
    "data.augment.spec_augment=null",
    "data.cache_megabytes=0",
    "training.num_train_epochs=1",
    "training.save_strategy=no",
)


class _Clock(TrainerCallback):
    """Seconds between the beginning and the end of the epoch."""

    def __init__(self) -> None:
        self.began = self.seconds = 0.0

    def on_epoch_begin(self, *arguments: Any, **context: Any) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, *arguments: Any, **context: Any) -> None:
        self.seconds = time.perf_counter() - self.began


class Bench:
    """The ways through an epoch.

    Args:
        data: folder of fsdd.
        scratch: for run directories.
        overrides: of the preset.
    """

    def __init__(self, data: Path, scratch: Path, overrides: Sequence[str] = ()) -> None:
        self.data, self.scratch, self.overrides = data, scratch, overrides
        self._runs = 0

    def _experiment(self) -> tuple[Any, Any]:
        self._runs += 1
        place = f"training.output_dir={self.scratch / f'run{self._runs}'}"
        config = preset_config(self.data, *OVERRIDES, *self.overrides, place)
        torch.manual_seed(config.training.seed)
        return config, build_experiment(config)

    @property
    def cap_seconds(self) -> float:
        """Most padded seconds of a batch."""
        config, _ = self._experiment()
        return float(config.data.sampler.max_padded_seconds)

    def longest_seconds(self) -> float:
        """Of a recording."""
        return float(max(self._experiment()[1].train_dataset.planning_durations))

    def recordings(self) -> int:
        """In an epoch."""
        return len(self._experiment()[1].train_dataset)

    def voicehub(self, batch_size: int | None) -> float:
        """Our Trainer; ``batch_size`` None takes the preset's capped batches."""
        config, experiment = self._experiment()
        plan = experiment.train_plan
        if batch_size is not None:
            plan = FixedSizePlan(len(experiment.train_dataset), batch_size)
        clock = _Clock()
        trainer = Trainer(
            model=experiment.model,
            args=config.training,
            train_dataset=experiment.train_dataset,
            data_collator=experiment.data_collator,
            train_plan=plan,
            callbacks=[*experiment.callbacks, clock],
        )
        trainer.train()
        return clock.seconds

    def speechbrain(self, batch_size: int | None) -> float:
        """``Brain.fit``; ``batch_size`` None takes its DynamicBatchSampler under our cap."""
        config, experiment = self._experiment()
        model, dataset = experiment.model, experiment.train_dataset
        assert isinstance(model, XVectorModel) and isinstance(dataset, XVectorDataset)
        rows = speechbrain_dataset(dataset, 0)
        loader: dict[str, Any] = {"num_workers": 0}
        if batch_size is None:
            samplers = speechbrain_part("dataio.sampler")
            cap = float(config.data.sampler.max_padded_seconds)
            loader["batch_sampler"] = samplers.DynamicBatchSampler(
                rows, cap, num_buckets=experiment.train_plan.num_buckets, shuffle=True,
                max_batch_ex=config.data.sampler.max_batch_size,
                length_func=lambda row: row["duration"],
            )  # fmt: skip
            steps = len(loader["batch_sampler"])
        else:
            loader.update(batch_size=batch_size, shuffle=True)
            steps = -(-len(dataset) // batch_size)
        marks: list[float] = []
        brain = make_brain(
            model, config, steps, on_epoch=lambda what: marks.append(time.perf_counter())
        )
        brain.fit([1], rows, train_loader_kwargs=loader)
        return marks[1] - marks[0]


def taken(data: Path, count: int, folder: Path) -> Path:
    """A folder with every so manieth row of the training manifest, about ``count`` of them."""
    folder.mkdir()
    manifest = data / "train.jsonl"
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["speaker"] in TRAIN_SPEAKERS]
    lines = []
    for row in rows[:: max(1, len(rows) // count)]:
        row["audio_filepath"] = str((data / row["audio_filepath"]).resolve())
        lines.append(json.dumps(row) + "\n")
    (folder / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def matched_batch_size(bench: Bench, peak: int) -> tuple[int, int]:
    """The largest number of recordings whose random batches peak at ``peak`` or less.

    Begins where the padded seconds are equal; the epoch's longest recording decides its peak.
    """
    size = max(1, round(bench.cap_seconds / bench.longest_seconds()))
    size = max(1, round(size * peak / _fixed_peak(bench, size)))
    found = _fixed_peak(bench, size)
    while found > peak and size > 1:
        size -= 1
        found = _fixed_peak(bench, size)
    return size, found


def _fixed_peak(bench: Bench, size: int) -> int:
    return peak_bytes(lambda: bench.voicehub(size))


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Recordings a second and peaks of every way, and the two ratios that are promised."""
    peak = peak_bytes(lambda: bench.voicehub(None))
    size, fixed_peak = matched_batch_size(bench, peak)
    ways: dict[str, Epoch] = {
        "voicehub, bucketed": lambda: bench.voicehub(None),
        "voicehub, fixed": lambda: bench.voicehub(size),
        "speechbrain, fixed": lambda: bench.speechbrain(size),
        "speechbrain, dynamic": lambda: bench.speechbrain(None),
    }
    peaks = {"voicehub, bucketed": peak, "voicehub, fixed": fixed_peak}
    for name in ("speechbrain, fixed", "speechbrain, dynamic"):
        peaks[name] = peak_bytes(ways[name])
    seconds = interleave(ways, rounds, warm_up=False)
    count = bench.recordings()
    ours = seconds["voicehub, bucketed"]
    return {
        "batch_size": size,
        "ways": {
            name: {
                "recordings_per_second": count / statistics.median(times),
                "ours_faster_by": ratio(times, ours),
                "peak_mb": peaks[name] / 1e6,
            }
            for name, times in seconds.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One epoch of a speaker model, several ways.")
    parser.add_argument("data", type=Path, help="folder of fsdd")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recordings", type=int, help="of the training data; by default all")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        scratch, data = Path(folder), options.data
        if options.recordings is not None:
            data = taken(data, options.recordings, scratch / "data")
        found = measure(Bench(data, scratch), options.rounds)
    print(f"fixed batches hold {found['batch_size']} recordings")
    print(f"{'way':22}{'recordings/s':>14}{'ours faster by':>16}{'peak MB':>10}")
    for name, row in found["ways"].items():
        print(
            f"{name:22}{row['recordings_per_second']:14.0f}{row['ours_faster_by']:16.2f}"
            f"{row['peak_mb']:10.1f}"
        )
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Memory of long runs: training with workers does not grow, evaluation keeps no outputs."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from barkit import Outcome, Skipped, bar

ROWS, STEPS, EVERY, WARM_UP = 100_000, 2_000, 100, 400
GROWTH = 1.0
"""Megabytes per 100 steps, of the main process and its workers together."""
SPREAD = 16.0
"""Megabytes between the peaks of a small and a large evaluation; one that kept its outputs would
differ by 400."""


class Manifest:
    """Rows as a manifest reader makes them, packed; features are made from the row."""

    deterministic = True

    def __init__(self, rows: int) -> None:
        from voicehub.data.packed_rows import PackedRows

        self.rows = PackedRows(
            {
                "id": f"utterance-{n:08d}",
                "audio_filepath": f"/corpus/speaker-{n % 251:04d}/utterance-{n:08d}.flac",
                "text": f"the text of utterance number {n} is read in the worker",
                "duration": 1.0 + n % 90 / 10,
            }
            for n in range(rows)
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        row = self.rows[index]
        frames = int(10 * row["duration"])
        features = torch.full((frames, 16), float(len(row["text"]) % 7))
        return {"id": row["id"], "features": features}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    from torch.nn.utils.rnn import pad_sequence

    return {
        "features": pad_sequence([item["features"] for item in items], batch_first=True),
        "batch_info": {"ids": [item["id"] for item in items]},
    }


collate.deterministic = True  # type: ignore[attr-defined]


def pss(pid: int | str) -> float:
    """Proportional set size in MB: shared pages are divided among the processes that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system reports no Pss")


def family_pss() -> float:
    """This process and its children."""
    children = Path("/proc/self/task").glob("*/children")
    pids = {pid for path in children for pid in path.read_text().split()}
    return pss("self") + sum(map(pss, pids))


def train(scratch: Path) -> list[tuple[int, float]]:
    """(step, MB) of a run with two workers."""
    import torch

    from voicehub import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Sequential):
        def forward(self, features: Any) -> Any:
            return {"loss": super().forward(features).square().mean()}

    samples: list[tuple[int, float]] = []

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step == EVERY:
                # The first full collection writes to every object, and so takes pages for itself
                # that it shared with the workers: 70 MB, once, at whatever step it comes.
                gc.collect()
            if state.global_step % EVERY == 0:
                samples.append((state.global_step, family_pss()))

    arguments = TrainingArguments(
        output_dir=str(scratch / "run"),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        dataloader_num_workers=2,
        logging_steps=10,
        save_steps=500,
        save_total_limit=2,
        use_cpu=True,
    )
    Trainer(
        model=Model(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)),
        args=arguments,
        train_dataset=Manifest(ROWS),
        data_collator=collate,
        callbacks=[Watch()],
    ).train()
    return samples


def growth(samples: list[tuple[int, float]]) -> float:
    """Least-squares slope after warm-up, MB per 100 steps."""
    points = [(step, size) for step, size in samples if step >= WARM_UP]
    mean_step = sum(step for step, _ in points) / len(points)
    mean_size = sum(size for _, size in points) / len(points)
    above = sum((step - mean_step) * (size - mean_size) for step, size in points)
    return 100 * above / sum((step - mean_step) ** 2 for step, _ in points)


def evaluate(samples: int, scratch: Path) -> float:
    """Peak MB above the resident memory of an evaluation whose batches give 3 MB of logits."""
    import torch
    from torch.utils.data import TensorDataset

    from voicehub import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 100_000)

        def forward(self, features: Any) -> Any:
            logits = self.layer(features)
            return {"loss": logits.square().mean(), "logits": logits}

    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(output_dir=str(scratch), per_device_eval_batch_size=8, use_cpu=True),
        eval_dataset=TensorDataset(torch.randn(samples, 4)),
    )
    trainer.evaluate(TensorDataset(torch.randn(16, 4)))
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    trainer.evaluate()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def apart(what: str, scratch: Path) -> Any:
    """Measure in a process of its own: what others left in memory does not count."""
    if not Path("/proc/self/smaps_rollup").exists():
        raise Skipped("needs Linux's /proc/<pid>/smaps_rollup")
    command = [sys.executable, str(Path(__file__)), what, str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


@bar("memory", f"{ROWS:,} rows, 2 workers, {STEPS:,} steps: < {GROWTH:g} MB per 100 steps")
def memory(scratch: Path) -> Outcome:
    samples = apart("train", scratch)
    slope = growth(samples)
    first, last = samples[0][1], samples[-1][1]
    figure = (
        f"{slope:+.2f} MB per 100 steps ({first:.0f} MB at step {EVERY}, {last:.0f} at the end)"
    )
    return Outcome(figure, slope < GROWTH, {"samples": samples})


@bar("eval-memory", f"peak of evaluating 1,024 and 64 samples within {SPREAD:g} MB")
def evaluation_memory(scratch: Path) -> Outcome:
    small, large = apart("64", scratch / "small"), apart("1024", scratch / "large")
    figure = f"64 samples +{small:.1f} MB, 1,024 samples +{large:.1f} MB"
    return Outcome(figure, large - small < SPREAD)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    place = Path(sys.argv[2])
    print(json.dumps(train(place) if sys.argv[1] == "train" else evaluate(int(sys.argv[1]), place)))

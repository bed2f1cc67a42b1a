"""Any damage to any file of a checkpoint is found and named before anything is read from it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barkit import Outcome, bar

SMALL = 4096
SAMPLED = 400
"""Every byte and every length of small files; so many of larger ones, drawn with a seed."""

Change = Callable[[], None]


def make_checkpoint(directory: Path) -> Path:
    """A checkpoint of the Trainer: AdamW, a callback with state, 300 parameters."""
    import torch
    from torch.utils.data import TensorDataset

    from voicehub import Trainer, TrainingArguments

    class Mean(torch.nn.Sequential):
        def forward(self, features: Any) -> Any:
            return {"loss": super().forward(features).square().mean()}

    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(directory), max_steps=2, save_steps=2, logging_steps=1, use_cpu=True
    )
    data = TensorDataset(torch.randn(32, 16))
    Trainer(model=Mean(torch.nn.Linear(16, 16)), args=arguments, train_dataset=data).train()
    return directory / "checkpoint-2"


def damages(checkpoint: Path) -> Iterator[tuple[str, tuple[str, ...], Change]]:
    """Kinds of damage, the names of which one must be told, and what does it."""
    rng = random.Random(0)
    files = {path.name: path.read_bytes() for path in sorted(checkpoint.iterdir())}
    for name, content in files.items():
        path, size = checkpoint / name, len(content)
        places = range(size) if size <= SMALL else sorted(rng.sample(range(size), SAMPLED))
        for place in places:
            flipped = bytearray(content)
            flipped[place] ^= 1 << rng.randrange(8)
            yield "bit flips", (name,), lambda p=path, c=bytes(flipped): p.write_bytes(c)
        for length in places:
            yield "truncations", (name,), lambda p=path, c=content[:length]: p.write_bytes(c)
        yield "deletions", (name,), lambda p=path: p.unlink()
        yield "longer files", (name,), lambda p=path, c=content + b"\0": p.write_bytes(c)
    for pair in itertools.combinations(files, 2):
        if files[pair[0]] != files[pair[1]]:
            yield "swaps", pair, lambda p=pair: swap(checkpoint, files, p)
    for name in ("foreign.txt", "model_state.safetensors.bak", "pytorch_model.bin"):
        yield "foreign files", (name,), lambda p=checkpoint / name: p.write_bytes(b"x")


def swap(checkpoint: Path, files: dict[str, bytes], pair: tuple[str, str]) -> None:
    (checkpoint / pair[0]).write_bytes(files[pair[1]])
    (checkpoint / pair[1]).write_bytes(files[pair[0]])


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def runs_code(checkpoint: Path, name: str, seal: bool, trace: Path) -> bool:
    """Whether code in a pickle of this name ran, or its file was accepted."""
    from voicehub.checkpoints.reader import open_checkpoint
    from voicehub.errors import CheckpointError

    (checkpoint / name).write_bytes(pickle.dumps(Evil(trace), protocol=2))
    if seal:
        reseal(checkpoint)
    try:
        opened = open_checkpoint(checkpoint)
        for read in (opened.optimizer, opened.scheduler, opened.rng, opened.runtime):
            read()
    except CheckpointError as error:
        return trace.exists() or name not in str(error)
    return True


def reseal(checkpoint: Path) -> None:
    """Make manifest and ``.complete`` fit the files, as a forger would."""
    path = checkpoint / "checkpoint_manifest.json"
    manifest = json.loads(path.read_text())
    for name, entry in manifest["file_integrity"].items():
        content = (checkpoint / name).read_bytes()
        entry["size"], entry["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(manifest))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (checkpoint / ".complete").write_text(digest + "\n")


@bar("damage", "every flip, truncation, deletion, swap, foreign file found by name; no code runs")
def damage(scratch: Path) -> Outcome:
    from voicehub.checkpoints.reader import open_checkpoint
    from voicehub.errors import CheckpointError

    checkpoint = make_checkpoint(scratch / "run")
    files = {path: path.read_bytes() for path in checkpoint.iterdir()}

    def restore() -> None:
        for path in set(checkpoint.iterdir()) - set(files):
            path.unlink()
        for path, content in files.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    counts: Counter[str] = Counter()
    missed: list[str] = []
    for kind, names, change in damages(checkpoint):
        change()
        counts[kind] += 1
        try:
            open_checkpoint(checkpoint)
        except CheckpointError as error:
            if not any(name in str(error) for name in names):
                missed.append(f"{kind} of {names}: {error}")
        else:
            missed.append(f"{kind} of {names} was accepted")
        restore()
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_runtime.pt"):
        for seal in (False, True):
            counts["pickles with code"] += 1
            if runs_code(checkpoint, name, seal, scratch / f"ran-{name}-{seal}"):
                missed.append(f"code in {name}, resealed: {seal}")
            restore()
    open_checkpoint(checkpoint)
    figure = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    if missed:
        figure = f"{len(missed)} missed, first: {missed[0][:200]}; of {figure}"
    return Outcome(figure, not missed)

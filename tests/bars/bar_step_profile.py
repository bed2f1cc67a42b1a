"""What a step does beside its arithmetic, by torch's profiler, on two phases and 1,000 modules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barkit import ROOT, Outcome, bar

MODULES = 1000
PROFILED = 3
"""The step that is profiled, when everything that is made once has been made."""
FEW, MANY = 1, 3
"""Micro-batches of an update."""
WALKS = (
    *("modules", "named_modules", "children", "named_children", "parameters", "named_parameters"),
    *("buffers", "named_buffers", "state_dict", "train", "eval", "apply", "requires_grad_"),
)
WAITS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::item")
"""Reads of a value by the host: where the tensor is on a device, it waits for it."""


@contextmanager
def counted_walks(counts: Counter[str], switch: dict[str, bool]) -> Iterator[None]:
    """Count calls of the methods that walk over a module tree, while the switch is on."""
    from torch import nn

    originals = {name: getattr(nn.Module, name) for name in WALKS}

    def counted(name: str) -> Any:
        def call(module: Any, *arguments: Any, **options: Any) -> Any:
            counts[name] += switch["on"]
            return originals[name](module, *arguments, **options)

        return call

    for name in WALKS:
        setattr(nn.Module, name, counted(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(nn.Module, name, original)


def profile_step(scratch: Path, accumulation: int) -> tuple[Counter[str], Counter[str]]:
    """Walks over modules, and operators, of one update."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import recipe_overhead
    import torch
    from torch.utils.data import TensorDataset

    from voicehub import Trainer, TrainerCallback, TrainingArguments

    torch.manual_seed(0)
    torch.set_num_threads(1)
    walks: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    switch = {"on": False}

    class Profile(TrainerCallback):
        """The profiler around one step."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step == PROFILED:
                activities = [torch.profiler.ProfilerActivity.CPU]
                self.profiler = torch.profiler.profile(activities=activities)
                self.profiler.__enter__()
                switch["on"] = True

        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if switch["on"]:
                switch["on"] = False
                self.profiler.__exit__(None, None, None)
                self.profiler.export_chrome_trace(str(scratch / f"step-of-{accumulation}.json"))
                operators.update(event.name for event in self.profiler.events())

    model = recipe_overhead.Gan(MODULES)
    rows = 2 * (PROFILED + 1) * accumulation  # of batches of two
    arguments = TrainingArguments(
        output_dir=str(scratch / f"run-{accumulation}"),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulation,
        max_steps=PROFILED + 1,
        logging_steps=100,
        save_strategy="no",
        use_cpu=True,
    )
    with counted_walks(walks, switch):
        Trainer(
            model=model,
            args=arguments,
            data_collator=recipe_overhead.Clock(rows),
            train_dataset=TensorDataset(*torch.randn(2, rows, recipe_overhead.WIDTH)),
            training_adapter=recipe_overhead.GanAdapter(model, recipe_overhead.recipe()),
            callbacks=[Profile()],
        ).train()
    if not operators["aten::linear"]:
        raise RuntimeError("the profile is empty")
    return walks, operators


@bar("step-profile", "no walk over modules, no wait for a value per micro-batch (1,000 modules)")
def step_profile(scratch: Path) -> Outcome:
    found = {number: profile_step(scratch, number) for number in (FEW, MANY)}
    # AdamW reads the step counter of every tensor, which it keeps on the host on any device.
    counters = 2 * (MODULES // 2)
    walks = {number: walked.total() for number, (walked, _) in found.items()}
    waits = {number: found[number][1][WAITS[0]] for number in found}
    linear = {number: found[number][1]["aten::linear"] for number in found}
    passed = not any(walks.values()) and waits[FEW] == waits[MANY]
    passed = passed and linear[MANY] == MANY // FEW * linear[FEW]  # the same work a micro-batch
    rows = {
        number: {
            "walks": dict(walked),
            "waits": {name: operators[name] for name in WAITS},
            "operators": operators.total(),
            "linear": operators["aten::linear"],
        }
        for number, (walked, operators) in found.items()
    }
    figure = (
        f"{max(walks.values())} walks; values read by the host in an update of two phases: "
        f"{waits[FEW] - counters} with {FEW} micro-batch, {waits[MANY] - counters} with {MANY} "
        f"(and {counters:,} step counters of AdamW)"
    )
    return Outcome(figure, passed, {"by_micro_batches": rows})

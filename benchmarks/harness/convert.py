"""From the JSON that each script prints to measures and facts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from harness.results import Measure

Facts = dict[str, float | str]
Converted = tuple[list[Measure], Facts]

PLAIN, OURS = "plain loop", "voicehub"


def _medians(
    quantity: str,
    unit: str,
    rounds: Mapping[str, Sequence[float]],
    baseline: str,
    scale: float = 1.0,
    **options: Any,
) -> Measure:
    scaled = {name: [scale * value for value in values] for name, values in rounds.items()}
    medians = {name: statistics.median(values) for name, values in scaled.items()}
    return Measure.of(quantity, unit, medians, baseline, rounds=scaled, **options)


def startup(found: dict[str, Any]) -> Converted:
    """``startup.py``; ours are all but the empty interpreter and other packages."""
    cases = found["cases"]
    values = {_started(name): 1e3 * case["cpu_seconds"] for name, case in cases.items()}
    facts: Facts = {f"modules, {_started(n)}": float(case["modules"]) for n, case in cases.items()}
    return [Measure.of("CPU time", "ms", values, "empty interpreter")], facts


def _started(name: str) -> str:
    return f"{OURS}: import" if name == "import voicehub" else name.replace("voicehub ", f"{OURS} ")


def trainer_overhead(found: dict[str, Any]) -> Converted:
    """``trainer_overhead.py``."""
    systems = found["systems"]
    rounds = {_system(name): row["us_per_step_by_round"] for name, row in systems.items()}
    facts: Facts = {"steps": float(found["steps"])}
    for name, row in systems.items():
        facts[f"CPU time of start and end, s, {_system(name)}"] = row["start_and_end_seconds"]
    return [_medians("CPU time a step", "us", rounds, "bare loop")], facts


def _system(name: str) -> str:
    return "bare loop" if name == "bare" else name


def recipe_overhead(found: dict[str, Any]) -> Converted:
    """``recipe_overhead.py``."""
    rounds = found["ms_per_step"]
    measure = _medians("CPU time a step", "ms", rounds, "hand-written")
    return [measure], {"modules": float(found["modules"])}


def checkpoint(found: dict[str, Any]) -> Converted:
    """``checkpoint_saving.py``."""
    seconds = found["seconds"]
    held = {"torch.save": seconds["torch_save"], OURS: seconds["held"]}
    durable = {"torch.save + fsync": seconds["torch_durable"], OURS: seconds["durable"]}
    memory = found["megabytes"]
    facts: Facts = {
        "parameters": float(found["parameters"]),
        "first save, held, of torch.save": found["first_held_ratio"],
        "state, MB": memory["state"],
        "peak memory of the first save, MB": memory["first save"],
        "peak memory of a later save, MB": memory["later save"],
        "wall over CPU time of torch.save, 1 on an idle machine": found["contention"],
    }
    return [
        _medians("training is held", "s", held, "torch.save"),
        _medians("until it is durable", "s", durable, "torch.save + fsync"),
    ], facts


def resume(found: dict[str, Any]) -> Converted:
    """``resume_time.py``."""
    measure = _medians(
        "CPU time to the first batch", "ms", found["seconds"], "transformers", scale=1e3
    )
    return [measure], {"step": float(found["step"]), "samples": float(found["samples"])}


def batch_plan(found: dict[str, Any]) -> Converted:
    """``batch_plan.py``."""
    systems, base = found["systems"], "transformers, 5 a batch"
    waste = {name: 100 * row["waste"] for name, row in systems.items()}
    planning = {name: row["planning_seconds"] for name, row in systems.items()}
    speeds = {name: row["speech_per_cpu_second"] for name, row in systems.items()}
    facts: Facts = {
        "utterances": float(found["items"]),
        "mu of the log-normal": found["mu"],
        "sigma": found["sigma"],
        "cap, s": found["cap"],
        "groups of ours": float(found["buckets"]),
        "epochs whose order is tested": float(found["epochs_of_order"]),
    }
    for name, row in systems.items():
        facts[f"largest batch, padded s, {name}"] = row["most_padded_seconds"]
        if row["order"]:
            least = min(row["order"].values())
            facts[f"order of batches, least p of three tests, {name}"] = f"{least:.2g}"
    return [
        Measure.of("padding waste", "%", waste, base),
        _medians("throughput", "s of speech a CPU second", speeds, base, better="higher"),
        _medians("CPU time to plan an epoch", "s", planning, base),
    ], facts


def losses(found: dict[str, Any]) -> Converted:
    """``losses.py``; the name of each case is the quantity's."""
    measures: list[Measure] = []
    facts: Facts = {}
    for case in found["cases"]:
        title = case["case"]
        seconds = {_own(name): 1e3 * value for name, value in case["seconds"].items()}
        measures.append(Measure.of(f"{title}: time", "ms", seconds, case["rival"]))
        memory = {_own(name): value for name, value in case["megabytes"].items()}
        if memory:
            measures.append(Measure.of(f"{title}: peak memory", "MB", memory, case["rival"]))
        facts.update({f"{title}: {name}": float(v) for name, v in case["facts"].items()})
    return measures, facts


def _own(name: str) -> str:
    return name.replace("ours", OURS, 1) if name.startswith("ours") else name


def aam_softmax(found: dict[str, Any]) -> Converted:
    """``aam_softmax.py``."""
    systems, base = found["systems"], "textbook"
    return [
        Measure.of(
            "time", "ms", {name: 1e3 * row["seconds"] for name, row in systems.items()}, base,
            ratios={name: row["time_ratio"] for name, row in systems.items()},
        ),
        Measure.of(
            "peak resident memory", "MB",
            {name: row["resident_mb"] for name, row in systems.items()}, base,
        ),
    ], {"classes": float(found["classes"])}  # fmt: skip


def step(found: dict[str, Any]) -> Converted:
    """Any script that prints ``seconds`` of ``ours`` and ``plain``."""
    rounds = {PLAIN: found["seconds"]["plain"], OURS: found["seconds"]["ours"]}
    return [_medians("CPU time a step", "ms", rounds, PLAIN, scale=1e3)], {}


def vits_step(found: dict[str, Any]) -> Converted:
    """``vits_step.py``: the step, and its parts as facts."""
    measures, facts = step(found)
    for part, ours in found["parts"]["ours"].items():
        plain = found["parts"]["plain"][part]
        facts[f"{part}, ms, ours and the plain loop's"] = f"{1e3 * ours:.1f} and {1e3 * plain:.1f}"
    return measures, facts


def xvector_throughput(found: dict[str, Any]) -> Converted:
    """``xvector_throughput.py``; ratios are medians of ratios within a round."""
    ways, base = found["ways"], "speechbrain, fixed"
    mine = ways["voicehub, bucketed"]["ours_faster_by"]
    return [
        Measure.of(
            "throughput", "recordings/s",
            {name: way["recordings_per_second"] for name, way in ways.items()}, base,
            better="higher",
            ratios={
                name: ways[base]["ours_faster_by"] / way["ours_faster_by"] * mine
                for name, way in ways.items()
            },
        ),
        Measure.of(
            "peak memory", "MB", {name: way["peak_mb"] for name, way in ways.items()}, base
        ),
    ], {"recordings a random batch": float(found["batch_size"])}  # fmt: skip

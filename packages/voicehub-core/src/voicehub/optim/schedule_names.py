"""Names of the learning-rate schedules and the options each accepts. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from voicehub.suggest import did_you_mean

#: What an option may be: a number, or for ``milestones`` whole numbers of updates.
Options = Mapping[str, "float | list[int]"]

# Schedule name -> option name -> default. ``None`` means "must be given".
SCHEDULES: dict[str, dict[str, float | list[int] | None]] = {
    "linear": {"min_lr_ratio": 0.0},
    "cosine": {"min_lr_ratio": 0.0, "num_cycles": 0.5},
    "constant": {},
    "constant_with_warmup": {},
    "inverse_sqrt": {"timescale": 0.0},
    "inverse_power": {"timescale": None, "power": 1.0},
    "noam": {"model_dim": None},
    "exponential": {"gamma": 0.9999},
    "polynomial": {"power": 2.0, "min_lr_ratio": 0.0},
    "step": {"step_size": None, "gamma": 0.1},
    "multistep": {"milestones": None, "gamma": 0.1},
    "triangular": {"period": None, "gamma": 1.0, "min_lr_ratio": 0.0},
    "plateau": {"factor": 0.5, "patience": 2, "threshold": 1e-4, "min_lr_ratio": 0.0},
}


def check_schedule_options(name: str, options: Options) -> None:
    """Raise ``ValueError`` for an option that the schedule does not read, or one it lacks."""
    accepted = SCHEDULES[name]
    for key in options:
        if key not in accepted:
            known = ", ".join(sorted(accepted)) or "none"
            raise ValueError(
                f"lr_scheduler_kwargs: schedule '{name}' has no option '{key}' "
                f"(it accepts: {known}).{did_you_mean(key, accepted)}"
            )
    for key, default in accepted.items():
        if default is None and key not in options:
            raise ValueError(f"lr_scheduler_kwargs: schedule '{name}' needs '{key}'")
    for key, value in options.items():
        if isinstance(value, list) != (key == "milestones"):
            wanted = "a list of updates" if key == "milestones" else "a number"
            raise ValueError(f"lr_scheduler_kwargs: '{key}' must be {wanted}, got {value!r}")
    _check_values(name, options)


def _check_values(name: str, options: Options) -> None:
    for key in ("step_size", "period", "timescale", "model_dim"):
        value = options.get(key, 1)
        least = 0 if (name, key) == ("inverse_sqrt", "timescale") else 1
        if not isinstance(value, list) and value < least:
            raise ValueError(f"lr_scheduler_kwargs: {key} must be at least {least}, got {value}")
    stones = options.get("milestones", [])
    assert isinstance(stones, list)
    if any(stone < 1 for stone in stones) or sorted(set(stones)) != stones:
        raise ValueError(
            f"lr_scheduler_kwargs: milestones must be rising counts of updates, got {stones}"
        )

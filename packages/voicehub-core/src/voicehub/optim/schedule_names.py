"""Names of the learning-rate schedules and the options each accepts. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from voicehub.suggest import did_you_mean

# Schedule name -> option name -> default. ``None`` means "must be given".
SCHEDULES: dict[str, dict[str, float | None]] = {
    "linear": {"min_lr_ratio": 0.0},
    "cosine": {"min_lr_ratio": 0.0, "num_cycles": 0.5},
    "constant": {},
    "constant_with_warmup": {},
    "inverse_sqrt": {"timescale": 0.0},
    "exponential": {"gamma": 0.9999},
    "polynomial": {"power": 2.0, "min_lr_ratio": 0.0},
    "step": {"step_size": None, "gamma": 0.1},
    "plateau": {"factor": 0.5, "patience": 2, "threshold": 1e-4, "min_lr_ratio": 0.0},
}


def check_schedule_options(name: str, options: Mapping[str, float]) -> None:
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

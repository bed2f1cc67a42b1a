"""Logged numbers as a person reads them; shared by the console, the summary and the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_SHARES = ("data_wait", "padding_waste")
_ERROR_RATES = ("wer", "cer", "eer")

# Logged key -> what a person calls it, in the order of display.
LABELS = {
    "loss": "loss",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "audio_per_second": "audio s/s",
    "samples_per_second": "samples/s",
    "data_wait": "waiting for data",
    "padding_waste": "padding waste",
    "skipped_steps": "skipped steps",
}


# What evaluations and artifacts say of the weights they are of.
WEIGHTS = {"raw": "raw weights", "ema": "averaged weights"}


def label_of(key: str, weights: str | None = None) -> str:
    """``learning_rate/decoder`` -> ``learning rate (decoder)``.

    Args:
        key: name of a logged number.
        weights: ``raw`` or ``ema`` in a run with averaged weights, said behind the name:
            ``eval_ema_loss`` -> ``eval loss (averaged weights)``.
    """
    if weights is not None:
        plain = key.replace("eval_ema_", "eval_", 1) if weights == "ema" else key
        return f"{label_of(plain)} ({WEIGHTS.get(weights, weights)})"
    head, _, tail = key.partition("/")
    name = LABELS.get(head, head.replace("_", " "))
    return f"{name} ({tail})" if tail else name


def is_error_rate(key: str) -> bool:
    """Whether a metric is an error rate, read as a percentage."""
    return key.rsplit("_", 1)[-1].rsplit("/", 1)[-1] in _ERROR_RATES


def number(key: str, value: Any) -> str:
    """``value`` with the unit and the digits that suit ``key``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    if key.split("/", 1)[0] in _SHARES or is_error_rate(key):
        return f"{100 * value:.1f} %"
    if key.startswith("learning_rate"):
        return f"{value:.2e}"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e9):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def shown(logs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value of what is worth showing of a log row, in a fixed order."""
    order = list(LABELS)
    keys = [
        key
        for key, value in logs.items()
        if key.split("/", 1)[0] in LABELS and not (key == "skipped_steps" and not value)
    ]
    if "audio_per_second" in logs:
        keys = [key for key in keys if key != "samples_per_second"]
    keys.sort(key=lambda key: order.index(key.split("/", 1)[0]))
    return [(label_of(key), number(key, logs[key])) for key in keys]


def evaluation_metrics(logs: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation row, without its timing."""
    return {
        key: value
        for key, value in logs.items()
        if key.startswith("eval_")
        and isinstance(value, (int, float))
        and not key.endswith(("_runtime", "_per_second", "_samples"))
    }


def weights_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Of which weights each evaluated metric of a run is; empty in a run without averages."""
    return {
        key: str(row["weights"])
        for row in rows
        if "weights" in row
        for key in evaluation_metrics(row)
    }


def spark(values: Iterable[float], width: int = 24) -> str:
    """A line of block characters for the last ``width`` finite values."""
    finite = [value for value in values if math.isfinite(value)][-width:]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in finite)


def clock(seconds: float) -> str:
    """``1:02:03`` or ``02:03``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes:02d}:{last:02d}"

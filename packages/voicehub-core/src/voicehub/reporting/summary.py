"""What a finished run amounts to: a few facts, as text for the console and as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from voicehub.reporting import figures


@dataclass
class RunSummary:
    """Facts of a run.

    ``metrics`` are those of the final evaluation (``eval_<split>_<metric>``), ``best`` the best
    value of the watched metric with its step. ``seconds`` is the time spent training in this
    process, not in the ones before a resume. In a run with averaged weights ``metric_weights``
    says for each metric whether it is of the ``raw`` or the ``ema`` ones, ``model_directory``
    holds the raw and ``averaged_model_directory`` the averaged ones, of which ``averages`` says
    what they are and how far they have come. ``failures`` names what followed the saved weights
    and went wrong; ``final_metrics`` are the names of metrics that were measured there.
    """

    name: str
    family: str
    model_type: str
    device: str
    steps: int
    seconds: float
    training_loss: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    metric_weights: dict[str, str] = field(default_factory=dict)
    best: tuple[str, float, int | None] | None = None
    skipped_steps: int = 0
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    final_metrics: list[str] = field(default_factory=list)
    averages: dict[str, Any] | None = None
    run_directory: Path | None = None
    model_directory: Path | None = None
    averaged_model_directory: Path | None = None
    report: Path | None = None
    next_command: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def text(self) -> str:
        """Several lines; paths and the next command last, where the eye lands."""
        lines = [f"Done: {self.steps:,} steps in {figures.clock(self.seconds)} on {self.device}."]
        if self.training_loss is not None:
            lines.append(f"  training loss  {figures.number('loss', self.training_loss)}")
        width = max((len(self.label_of(key)) for key in self.metrics), default=0)
        lines += [
            f"  {self.label_of(key):<{width}}  {figures.number(key, value)}"
            for key, value in self.metrics.items()
        ]
        if self.best is not None:
            lines.append(f"  {self._best_text(*self.best)}")
        if self.skipped_steps:
            lines.append(f"  {self.skipped_steps} updates were skipped: see metrics.jsonl")
        if self.averages is not None:
            lines.append(f"  {self.averages_text()}")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        lines += [f"  FAILED: {failure}" for failure in self.failures]
        if self.failures and self.model_directory is not None:
            lines.append("  The weights are safe: what failed came after them.")
        lines += [f"{label:<7} {path}" for label, path in self._places()]
        if self.next_command:
            lines += ["", f"Next: {self.next_command}"]
        return "\n".join(lines)

    def averages_text(self) -> str:
        """What the averaged weights are, and what is left in them of the first weights."""
        found = self.averages or {}
        width = f", relative width {found['sigma_rel']:g}" if "sigma_rel" in found else ""
        decay = f", decay {found['decay']:g}" if "decay" in found else ""
        return (
            f"averaged weights: {found.get('kind')}{width}{decay}, {found.get('updates', 0):,} "
            f"updates; {found.get('start_share', 0.0):.2%} of the first weights remain in them"
        )

    def label_of(self, metric: str) -> str:
        """The metric as a person calls it, with the weights that it is of."""
        return figures.label_of(metric, self.metric_weights.get(metric))

    def _best_text(self, name: str, value: float, step: int | None) -> str:
        key = name if name.startswith("eval_") else f"eval_{name}"
        at = f" at step {step:,}" if step is not None else ""
        return f"best {self.label_of(key)}  {figures.number(key, value)}{at}"

    def _places(self) -> list[tuple[str, str]]:
        averaged = self.averaged_model_directory
        raw = f"{self.model_directory}" + (
            "" if averaged is None else f" ({figures.WEIGHTS['raw']})"
        )
        places = [
            ("model", raw if self.model_directory is not None else None),
            ("model", None if averaged is None else f"{averaged} ({figures.WEIGHTS['ema']})"),
            ("report", None if self.report is None else str(self.report)),
        ]
        return [(label, path) for label, path in places if path is not None]


def alerts_in(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The health alerts among the rows of ``metrics.jsonl``, each text once."""
    found: dict[str, None] = {}
    for row in rows:
        alert = row.get("alert")
        if alert:
            found[str(alert)] = None
    return list(found)

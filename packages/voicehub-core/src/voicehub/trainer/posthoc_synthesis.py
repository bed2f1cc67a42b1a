"""Averages of any width from those that a run has stored: planned first, then added up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.checkpoints.rotation import checkpoint_run_id
from voicehub.errors import CheckpointMismatchError, ConfigurationError
from voicehub.models.artifact import FINAL_MODEL
from voicehub.optim.power_profiles import (
    MAX_RESIDUAL,
    Combination,
    Profile,
    combine,
    gamma_of,
)
from voicehub.trainer.average_snapshots import (
    FOLDER,
    AverageSnapshot,
    StoredAverage,
    list_snapshots,
    require_own,
    verify_average,
)
from voicehub.trainer.posthoc_artifact import averages_in

if TYPE_CHECKING:
    from torch import Tensor


class Term(NamedTuple):
    """A stored average and its weight in the sum."""

    snapshot: AverageSnapshot
    average: StoredAverage
    weight: float


@dataclass(frozen=True)
class SynthesisPlan:
    """How an average is made.

    Attributes:
        run_id: The run.
        sigma_rel: Relative width asked for.
        step: Updates that it is taken over.
        terms: The stored averages with their weights, whose sum is 1.
        combination: The weights' residuals.
    """

    run_id: str
    sigma_rel: float
    step: int
    terms: tuple[Term, ...]
    combination: Combination

    @property
    def is_exact(self) -> bool:
        """Whether it is a stored average itself."""
        return sum(term.weight != 0.0 for term in self.terms) == 1

    def describe(self) -> dict[str, Any]:
        """What the artifact's manifest says of its weights, as JSON values."""
        return {
            "kind": "power-function",
            "sigma_rel": self.sigma_rel,
            "gamma": gamma_of(self.sigma_rel),
            "updates": self.step,
            "start_share": 0.0,
            "run_id": self.run_id,
            "synthesis": {
                "residual": self.combination.residual,
                "normalised_residual": self.combination.normalised_residual,
                "sum_before_normalising": self.combination.total,
                "terms": [
                    {
                        "step": term.snapshot.step,
                        "sigma_rel": term.average.sigma_rel,
                        "weight": term.weight,
                        "sha256": term.average.sha256,
                    }
                    for term in self.terms
                    if term.weight != 0.0
                ],
            },
        }


def run_id_of(run_dir: Path) -> str | None:
    """The id of the run in a directory: that of its newest checkpoint, else of its model."""
    newest = latest_checkpoint(run_dir) if run_dir.is_dir() else None
    if newest is not None:
        return checkpoint_run_id(newest)
    found = averages_in(run_dir / FINAL_MODEL).get("run_id")
    return found if isinstance(found, str) else None


def own_snapshots(run_dir: Path) -> tuple[str, list[AverageSnapshot]]:
    """The run's id and its snapshots.

    Raises:
        ConfigurationError: there are none.
        CheckpointMismatchError: one belongs to another run.
        CheckpointCorruptError: a manifest is damaged.
    """
    snapshots = list_snapshots(run_dir)
    if not snapshots:
        raise ConfigurationError(
            f"'{run_dir}' holds no stored averages ({FOLDER}/). A run stores them with "
            "training.posthoc_ema=true; the average of ema_decay cannot be changed afterwards."
        )
    run_id = run_id_of(run_dir) or snapshots[-1].run_id
    require_own(snapshots, run_id)
    return run_id, snapshots


def plan_synthesis(
    run_dir: Path, sigma_rel: float, *, step: int | None = None, force: bool = False
) -> SynthesisPlan:
    """Find the weights with which stored averages come nearest to the one asked for.

    Args:
        run_dir: Of the run.
        sigma_rel: Relative width.
        step: Updates to average over; None is the newest snapshot's.
        force: Accept a profile that differs by more than ``MAX_RESIDUAL``.

    Raises:
        ConfigurationError: nothing is stored, the width is impossible, the step lies behind the
            last snapshot, or the profile cannot be met.
        CheckpointMismatchError: a snapshot belongs to another run.
    """
    run_id, snapshots = own_snapshots(run_dir)
    newest = snapshots[-1].step
    target = newest if step is None else step
    if not 1 <= target <= newest:
        raise ConfigurationError(
            f"step {target} cannot be averaged over: the stored averages end at step {newest}."
        )
    stored = [(snapshot, average) for snapshot in snapshots for average in snapshot.averages]
    profiles = [snapshot.profile(average) for snapshot, average in stored]
    wanted = Profile(_known_gamma(sigma_rel, stored), target)
    found = combine(profiles, wanted)
    if found.residual > MAX_RESIDUAL and not force:
        raise ConfigurationError(
            f"sigma_rel {sigma_rel:g} over {target} updates cannot be made from "
            f"{len(snapshots)} snapshot{'s' if len(snapshots) > 1 else ''} of this run: the "
            f"profile would be off by {found.residual:.1%} (at most {MAX_RESIDUAL:.0%}). Choose a "
            f"width nearer to those tracked ({_widths(stored)}), store snapshots more often next "
            "time (posthoc_ema_snapshot_steps), or take it as it is with --force."
        )
    terms = tuple(
        Term(snapshot, average, weight)
        for (snapshot, average), weight in zip(stored, found.weights, strict=True)
    )
    return SynthesisPlan(run_id, sigma_rel, target, terms, found)


def _known_gamma(sigma_rel: float, stored: list[tuple[AverageSnapshot, StoredAverage]]) -> float:
    """The exponent of a width; of one that is tracked exactly that which is stored."""
    for _, average in stored:
        if average.sigma_rel == sigma_rel:
            return average.gamma
    return gamma_of(sigma_rel)


def _widths(stored: list[tuple[AverageSnapshot, StoredAverage]]) -> str:
    return ", ".join(f"{width:g}" for width in sorted({a.sigma_rel for _, a in stored}))


def synthesised(plan: SynthesisPlan) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of a planned average, one at a time; added up in float64.

    Raises:
        CheckpointCorruptError: a stored average is damaged.
        CheckpointMismatchError: two of them hold other tensors.
    """
    from safetensors import safe_open

    used = [term for term in plan.terms if term.weight != 0.0]
    with ExitStack() as stack:
        files = [
            stack.enter_context(
                safe_open(verify_average(term.snapshot, term.average), framework="pt")
            )
            for term in used
        ]
        names = sorted(files[0].keys())
        for term, file in zip(used, files, strict=True):
            if sorted(file.keys()) != names:
                raise CheckpointMismatchError(
                    f"{term.snapshot.directory / term.average.file} holds other tensors than "
                    f"{used[0].snapshot.directory / used[0].average.file}."
                )
        for name in names:
            first = files[0].get_tensor(name)
            if len(files) == 1:
                yield name, first
                continue
            total = first.double() * used[0].weight
            for term, file in zip(used[1:], files[1:], strict=True):
                total.add_(file.get_tensor(name).double(), alpha=term.weight)
            yield name, total.to(first.dtype)

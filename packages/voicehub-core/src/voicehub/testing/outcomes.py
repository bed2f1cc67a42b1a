"""What the checks of this process found, and a table of it for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from voicehub.testing.check_names import DESCRIPTIONS

Verdict = Literal["held", "declared", "failed"]


@dataclass(frozen=True)
class Outcome:
    """One check of one case.

    Attributes:
        model_type: Type of the case.
        check: Name of the check.
        verdict: ``held``; ``declared`` where the case says why it cannot; ``failed``.
        evidence: What was measured, the reason declared, or what went wrong.
    """

    model_type: str
    check: str
    verdict: Verdict
    evidence: str


_outcomes: dict[tuple[str, str], Outcome] = {}


def record(outcome: Outcome) -> None:
    """Keep an outcome for the report of this process; a repeated check replaces the older one."""
    _outcomes[outcome.model_type, outcome.check] = outcome


def recorded() -> tuple[Outcome, ...]:
    """Return the outcomes of this process in the order of their checks."""
    return tuple(_outcomes.values())


def report(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the lines of a readable report, one block a model type."""
    lines: list[str] = []
    by_type: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_type.setdefault(outcome.model_type, []).append(outcome)
    for model_type, found in by_type.items():
        lines += [f"{model_type}: {_counts(found)}"]
        for outcome in found:
            first = (outcome.evidence.strip().splitlines() or [""])[0]
            lines.append(
                f"  {outcome.verdict:<9}{outcome.check:<16}"
                f"{DESCRIPTIONS.get(outcome.check, '')}: {first}"
            )
    return lines


def _counts(found: list[Outcome]) -> str:
    verdicts = [outcome.verdict for outcome in found]
    counted = ((name, verdicts.count(name)) for name in ("held", "declared", "failed"))
    return ", ".join(f"{count} {name}" for name, count in counted if count)

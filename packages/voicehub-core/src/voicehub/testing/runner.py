"""Run one check of one case and record what it found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub.testing.cases import load_case
from voicehub.testing.check_names import CHECKS
from voicehub.testing.outcomes import Outcome, record

if TYPE_CHECKING:
    from voicehub.testing.case import ConformanceCase


class ConformanceError(AssertionError):
    """A family does not hold what every family must."""


def run_check(case: ConformanceCase | str, check: str, directory: Path) -> Outcome:
    """Run a check, record its outcome for the report, and return it.

    Args:
        case: The case, or a model type whose package offers one.
        check: One of ``CHECKS``.
        directory: An empty directory for runs and artifacts.

    Raises:
        ConformanceError: it does not hold and the case does not declare so; or the case is
            exempt from what does hold.
    """
    if check not in CHECKS:
        raise ConfigurationError(f"There is no check {check!r}.{did_you_mean(check, CHECKS)}")
    found = load_case(case) if isinstance(case, str) else case
    reason = found.exemptions.get(check)
    try:
        evidence = _run(found, check, directory)
    except Exception as error:
        if reason is not None and isinstance(error, (AssertionError, NotImplementedError)):
            return _recorded(Outcome(found.model_type, check, "declared", reason))
        _recorded(Outcome(found.model_type, check, "failed", _text(error)))
        if isinstance(error, NotImplementedError):
            raise ConformanceError(
                f"{found.model_type}: {check}: {error} Override it, or say why in "
                f"exemptions[{check!r}]."
            ) from error
        if isinstance(error, AssertionError):
            raise ConformanceError(f"{found.model_type}: {check}: {error}") from error
        raise
    if reason is not None:
        text = f"held ({evidence}), though exempt: {reason!r}. Remove the exemption."
        _recorded(Outcome(found.model_type, check, "failed", text))
        raise ConformanceError(f"{found.model_type}: {check}: {text}")
    return _recorded(Outcome(found.model_type, check, "held", evidence))


def _run(case: ConformanceCase, check: str, directory: Path) -> str:
    from voicehub.testing.checks import FUNCTIONS

    return FUNCTIONS[check](case, directory)


def _recorded(outcome: Outcome) -> Outcome:
    record(outcome)
    return outcome


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"

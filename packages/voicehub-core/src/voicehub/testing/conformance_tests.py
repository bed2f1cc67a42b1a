"""The tests that ``--voicehub-family`` collects: one for each check of each model type."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.testing.cases import model_types_of
from voicehub.testing.check_names import CHECKS
from voicehub.testing.runner import run_check

_MODEL_TYPE, _CHECK = "model_type", "check"
_NO_CASE = "no case"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check of each type that was asked for."""
    parameters = []
    for name in metafunc.config.getoption("--voicehub-family"):
        with_case, without = model_types_of(name)
        parameters += [(model_type, check) for model_type in with_case for check in CHECKS]
        parameters += [(model_type, _NO_CASE) for model_type in without]
    unique = list(dict.fromkeys(parameters))
    metafunc.parametrize((_MODEL_TYPE, _CHECK), unique, ids=[f"{a}-{b}" for a, b in unique])


def test_conformance(model_type: str, check: str, tmp_path: Path) -> None:
    """Run one check."""
    if check == _NO_CASE:
        pytest.fail(
            f"{model_type} offers no ConformanceCase in the entry points 'voicehub.conformance', "
            "so nothing of it was checked.",
            pytrace=False,
        )
    if run_check(model_type, check, tmp_path).verdict == "declared":
        pytest.skip("declared: see the report")

"""Every model type of this repository is under the kit: it has a case, and its package runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from voicehub.plugins.discovery import entry_points
from voicehub.plugins.groups import CONFORMANCE, TRAINING_SPECS
from voicehub.specs.registry import get_training_spec

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    path.parent.name: path.parent
    for pattern in ("packages", "plugins")
    for path in ROOT.glob(f"{pattern}/*/pyproject.toml")
}
#: Types of a library that no package here can require; its models cannot be made without it.
LIBRARIES = {"parlertts": "parler_tts"}
TYPES = [entry for entry in entry_points(TRAINING_SPECS) if entry.distribution in PACKAGES]


@pytest.mark.parametrize("entry", TYPES, ids=lambda entry: entry.name)
def test_every_model_type_is_under_the_kit(entry) -> None:
    library = LIBRARIES.get(entry.name)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed, and its versions of transformers are not ours")
    cases = {case.name for case in entry_points(CONFORMANCE)}
    spec = get_training_spec(entry.name)
    if not spec.has_training_recipe:
        return  # inference only: there is nothing to hold
    # The entry may be an alias.
    assert spec.model_type in cases, "no ConformanceCase in the entry points voicehub.conformance"
    tests = list((PACKAGES[entry.distribution] / "tests").rglob("test_*.py"))
    assert any("run_check(" in path.read_text(encoding="utf-8") for path in tests), (
        f"no test of {entry.distribution} runs the kit: "
        "parametrize one over voicehub.testing.CHECKS"
    )


def test_there_are_families_to_look_at() -> None:
    assert TYPES

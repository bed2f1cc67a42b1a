"""Finding the cases of installed packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from voicehub.errors import ConfigurationError, PluginError
from voicehub.plugins import loading
from voicehub.testing.cases import load_case, model_types_of

MODULE = """
from voicehub.specs.model import ModelTrainingSpec
from voicehub.testing import ConformanceCase
ONE = ModelTrainingSpec(model_type="case-one", family="cases", support="native")
TWO = ModelTrainingSpec(model_type="case-two", family="cases", support="native")
class Case(ConformanceCase):
    model_type = "case-one"
    def build(self, *, dropout=0.0): ...
    def item(self, length, seed): ...
class Other(Case):
    model_type = "something-else"
NO_CASE = 3
"""
ENTRIES = """
[voicehub.plugin_api]
v1 = planted_cases
[voicehub.training_specs]
case-one = planted_cases:ONE
case-two = planted_cases:TWO
[voicehub.conformance]
case-one = planted_cases:Case
case-other = planted_cases:Other
case-none = planted_cases:NO_CASE
"""


@pytest.fixture(autouse=True)
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    info = tmp_path / "planted_cases-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-cases\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "planted_cases.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.refresh()
    yield
    sys.modules.pop("planted_cases", None)
    monkeypatch.undo()
    loading.refresh()


def test_a_case_is_found_by_its_model_type() -> None:
    assert load_case("case-one").model_type == "case-one"


def test_a_family_stands_for_its_types_with_and_without_a_case() -> None:
    assert model_types_of("cases") == (("case-one",), ("case-two",))
    assert model_types_of("case-one") == (("case-one",), ())
    assert model_types_of("case-two") == ((), ("case-two",))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'case"):
        model_types_of("case-ones")


def test_what_is_no_case_of_that_type_is_refused() -> None:
    with pytest.raises(PluginError, match="must be a ConformanceCase, got 3"):
        load_case("case-none")
    with pytest.raises(PluginError, match="named 'case-other'.*'something-else'"):
        load_case("case-other")

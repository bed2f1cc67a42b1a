"""What starting up must not import: that is what makes it fast, whatever the machine.

`benchmarks/startup.py` measures the time; here only the cause is guarded.
"""

from __future__ import annotations

import pytest
import startup


@pytest.fixture(scope="module")
def plugins() -> list[str]:
    found = startup.plugin_modules()
    assert "voicehub_asr_ctc" in found, "no plugin is installed: the test would prove nothing"
    return found


@pytest.mark.parametrize("case", [case for case in startup.CASES if case != "empty interpreter"])
def test_no_tensor_library_and_no_plugin_is_loaded(case: str, plugins: list[str]) -> None:
    start = startup.measure(case)
    assert "voicehub" in start.modules
    assert start.heavy(plugins) == []


def test_import_loads_next_to_nothing() -> None:
    """Public names resolve when they are used, so a bare import brings our own modules alone."""
    empty = set(startup.measure("empty interpreter").modules)
    loaded = set(startup.measure("import voicehub").modules) - empty
    foreign = {name.partition(".")[0] for name in loaded} - {"voicehub"}
    assert not foreign & {"pydantic", "typer", "rich", "pluggy", "importlib_metadata"}
    assert len(loaded) < 60


def test_a_heavy_import_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(startup.CASES, "careless", "import voicehub, numpy, voicehub_data")
    assert startup.measure("careless").heavy(["voicehub_data"]) == ["numpy", "voicehub_data"]

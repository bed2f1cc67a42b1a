"""Every registered loss loads, says which path is live, and stands in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.kernels import load_loss
from voicehub.plugins import discovery
from voicehub.plugins.groups import LOSSES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "losses.md"


@pytest.mark.parametrize("name", discovery.names(LOSSES))
def test_it_loads_says_its_path_and_is_documented(name: str) -> None:
    loss = load_loss(name)
    assert loss.name == name
    assert loss.functions and all(function.__doc__ for function in loss.functions.values())
    for found in loss.selections():
        assert found.path and found.reason
    assert f"| `{name}` |" in PAGE.read_text(encoding="utf-8"), "add a row to docs/losses.md"

"""Sources that plugins add: found by name, loaded when asked for."""

from __future__ import annotations

import sys

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub.plugins import loading
from voicehub_data.manifest import read_manifest

SOURCE = """
from pathlib import Path
from voicehub_data.manifest import Manifest, ManifestRow


def read(config, role):
    rows = [ManifestRow(role, Path("/a.wav"), config.name or "")]
    return Manifest(tuple(rows), "0", Path(config.path), "planted")


nothing = "no manifest"
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A distribution with two data sources on the import path."""
    info = tmp_path / "planted_source-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-source\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[voicehub.plugin_api]\nv1 = planted_source\n"
        "[voicehub.data_sources]\nplanted = planted_source:read\n"
        "broken = planted_source:nothing\n"
    )
    (tmp_path / "planted_source.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    loading.refresh()
    yield
    sys.modules.pop("planted_source", None)
    monkeypatch.undo()
    loading.refresh()


def test_a_plugin_reads_its_source(planted):
    source = {"path": "anything", "kind": "planted", "name": "n"}
    (row,) = read_manifest(source, role="eval")
    assert (row.id, row.text) == ("eval", "n")


def test_listing_imports_nothing(planted):
    with pytest.raises(ConfigurationError, match="Did you mean 'planted'"):
        read_manifest({"path": "x", "kind": "plantd"})
    assert "planted_source" not in sys.modules


def test_what_a_plugin_returns_is_checked(planted):
    with pytest.raises(DataError, match=r"'broken' returned a str; expected .*Manifest"):
        read_manifest({"path": "x", "kind": "broken"})

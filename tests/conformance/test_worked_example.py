"""``plugins/voicehub-example`` is what ``voicehub new-plugin example`` writes, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.cli import new_plugin

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "plugins" / "voicehub-example"
OURS = {"LICENSE", "CHANGELOG.md"}


def test_the_example_is_the_template_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The example itself is installed here, which the command would refuse.
    monkeypatch.setattr(new_plugin, "_check", lambda name, directory: None)
    files = new_plugin.write_plugin("example", tmp_path / "example", license_="Apache-2.0")
    for name in files:
        ours, written = (EXAMPLE / name).read_text(), (tmp_path / "example" / name).read_text()
        assert ours == written, f"{name}: change the template and write the example anew"
    generated = ("__pycache__", ".egg-info", ".pytest_cache", ".ruff_cache", "runs/", ".nox/")
    there = {
        path.relative_to(EXAMPLE).as_posix()
        for path in EXAMPLE.rglob("*")
        if path.is_file() and not any(part in path.as_posix() for part in generated)
    }
    assert there == {*files, *OURS}

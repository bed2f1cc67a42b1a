"""The plugin tutorial shows what the template holds, and all checks; the support matrix is new."""

from __future__ import annotations

import re
from pathlib import Path

import support_matrix
from snippets import extract

from voicehub.cli.new_plugin import write_plugin
from voicehub.plugins.groups import GROUPS, PLUGIN_API
from voicehub.testing.check_names import DESCRIPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "plugins.md"


def unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_excerpts_are_those_of_the_template(tmp_path: Path) -> None:
    write_plugin("hush", tmp_path / "hush")
    source = tmp_path / "hush" / "src" / "voicehub_hush"
    seen = 0
    for block in extract(PAGE):
        name = re.match(r"# (\w+\.py)\n", block.text)
        if name is not None:
            seen += 1
            excerpt = unindented(block.text.partition("\n")[2])
            assert excerpt in unindented((source / name[1]).read_text()), block.where
        if block.language == "toml":
            seen += 1
            written = unindented((tmp_path / "hush" / "pyproject.toml").read_text())
            assert unindented(block.text) in written, block.where
    assert seen >= 4


def test_every_check_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == DESCRIPTIONS


def test_every_entry_point_group_is_listed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [group for group in (PLUGIN_API, *GROUPS) if f"`{group}`" not in text] == []


def test_the_support_matrix_is_up_to_date() -> None:
    """`python tools/support_matrix.py` writes it anew."""
    assert support_matrix.PAGE.read_text(encoding="utf-8") == support_matrix.page()

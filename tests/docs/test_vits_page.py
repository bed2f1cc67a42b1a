"""The page says of every figure what the panel and the report say."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub_vits.terms import TERMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "vits.md"


@pytest.mark.parametrize("note", TERMS, ids=lambda note: note.key)
def test_a_figure_is_explained_in_the_same_words(note: object) -> None:
    name = f"**{note.name}**" if note.decides else note.name  # type: ignore[attr-defined]
    row = f"| {name} | `{note.key}` | {note.meaning} | {note.band} |"  # type: ignore[attr-defined]
    assert row in PAGE.read_text(encoding="utf-8").splitlines()

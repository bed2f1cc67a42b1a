"""What ranks tell of a window."""

from __future__ import annotations

import pytest

from voicehub.errors import RecipeError
from voicehub.trainer.agreement import GlobalWindow, SharedWindow


def test_the_others_are_asked_once() -> None:
    asked: list[int] = []

    def take() -> GlobalWindow:
        asked.append(1)
        return GlobalWindow((1, 2))

    window = SharedWindow(take)
    assert window.found() is window.found()
    assert window.found().micro_batches == 3
    assert len(asked) == 1


def test_what_they_told_is_raised_whenever_it_is_asked_for() -> None:
    """A row is told once: a second wait for it would last until the time limit."""
    asked: list[int] = []

    def take() -> GlobalWindow:
        asked.append(1)
        raise RecipeError("phases are mixed")

    window = SharedWindow(take)
    for _ in range(2):
        with pytest.raises(RecipeError, match="phases are mixed"):
            window.found()
    assert len(asked) == 1

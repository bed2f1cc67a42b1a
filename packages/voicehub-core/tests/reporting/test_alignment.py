"""Word alignment: minimal, complete, and sensible among equals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicehub.reporting.alignment import align_words

WORDS = st.lists(st.sampled_from(["a", "b", "ab", "abc", "c"]), max_size=7)


def distance(left: list[str], right: list[str]) -> int:
    """Levenshtein by its definition, as an independent check."""
    if not left or not right:
        return len(left) + len(right)
    return min(
        distance(left[1:], right[1:]) + (left[0] != right[0]),
        distance(left[1:], right) + 1,
        distance(left, right[1:]) + 1,
    )


@given(WORDS, WORDS)
def test_the_alignment_is_complete_and_minimal(reference: list[str], heard: list[str]) -> None:
    path = align_words(" ".join(reference), " ".join(heard))
    assert [word.reference for word in path if word.reference is not None] == reference
    assert [word.hypothesis for word in path if word.hypothesis is not None] == heard
    assert sum(word.operation != "equal" for word in path) == distance(reference, heard)
    for word in path:
        assert (word.operation == "equal") == (word.reference == word.hypothesis)
        assert (word.operation == "insert") == (word.reference is None)
        assert (word.operation == "delete") == (word.hypothesis is None)


def test_similar_words_are_paired() -> None:
    path = align_words("turn the light off", "turn the lights")
    assert [(word.operation, word.reference) for word in path[2:]] == [
        ("substitute", "light"),
        ("delete", "off"),
    ]
    path = align_words("turn off the light", "turn the lights")
    assert [word.operation for word in path] == ["equal", "delete", "equal", "substitute"]


def test_nothing_against_something() -> None:
    assert align_words("", "") == []
    assert [word.operation for word in align_words("", "a b")] == ["insert", "insert"]
    assert [word.operation for word in align_words("a b", "")] == ["delete", "delete"]

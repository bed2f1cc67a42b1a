"""Nearest-name suggestions for misspelt keys and names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate closest to ``name``, or None when nothing is close.

    Case and the difference between ``-`` and ``_`` are ignored, so that the usual
    slips are found before real misspellings.
    """
    from difflib import get_close_matches

    known = list(candidates)
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(_fold(candidate), candidate)
    wanted = _fold(name)
    if wanted in folded:
        return folded[wanted]
    matches = get_close_matches(wanted, list(folded), n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest candidate, or an empty string."""
    match = nearest(name, candidates)
    return f" Did you mean {match!r}?" if match is not None else ""


def _fold(name: str) -> str:
    return name.strip().lower().replace("_", "-")

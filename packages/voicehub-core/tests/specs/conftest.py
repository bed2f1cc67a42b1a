"""Keeps what a test registers out of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from voicehub.specs import registry


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_aliases", {})
    yield

"""Which encoder and decoder an artifact stands on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from voicehub.errors import CheckpointMismatchError


class Bases(NamedTuple):
    """Where bases lie now, where that is not where they lay in training.

    Attributes:
        encoder, decoder: directory or Hub id; None takes the one of the artifact.
    """

    encoder: str | None = None
    decoder: str | None = None


def require_identity(part: str, stored: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse a base that is another than the one that was trained on.

    Args:
        part: ``encoder`` or ``decoder``.
        stored, found: of ``voicehub_hf.identity.checkpoint_identity``.

    Raises:
        CheckpointMismatchError: names what differs.
    """
    if stored.get("commit") and found.get("commit") and stored["commit"] != found["commit"]:
        raise CheckpointMismatchError(
            f"the {part} {found['source']} is at commit {found['commit']}; this model was trained "
            f"on {stored['commit']}. Give that revision."
        )
    before, now = stored.get("files"), found.get("files")
    if not before or not now:
        return
    weights = sorted(name for name in before if name.endswith(".safetensors"))
    differing = [name for name in weights if now.get(name) != before[name]]
    if differing:
        raise CheckpointMismatchError(
            f"the {part} {found['source']} is another one than this model was trained on: "
            f"{differing[0]} has SHA-256 {str(now.get(differing[0]))[:16]}…, expected "
            f"{before[differing[0]][:16]}…. Name where the right one lies: "
            f"from_pretrained(..., {part}=PATH)."
        )


def absolute(path: str) -> str:
    """A local directory by its whole path, a Hub id as it is."""
    return str(Path(path).resolve()) if Path(path).exists() else path

"""The newest checkpoint of a run that the host finds to be whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voicehub_remote.program import run_program
from voicehub_remote.rsync import size_text

if TYPE_CHECKING:
    from voicehub_remote.places import Places
    from voicehub_remote.ssh import Remote


@dataclass(frozen=True)
class Newest:
    """What there is to go on from.

    Attributes:
        folder: the run's directory on the host.
        name: of the checkpoint below it; None where there is no whole one.
        step: of its update.
        bytes: size of its files together.
        damaged: newer ones, each with ``checkpoint`` and ``reason``.
    """

    folder: str
    name: str | None = None
    step: int | None = None
    bytes: int = 0
    damaged: tuple[dict[str, str], ...] = ()

    def words(self) -> str:
        """For a person."""
        if self.name is None:
            return f"{self.folder} holds no whole checkpoint."
        return f"{self.folder}/{self.name}\nstep {self.step:,}, {size_text(self.bytes)}, verified"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        path = None if self.name is None else f"{self.folder}/{self.name}"
        return {
            "checkpoint": path,
            "step": self.step,
            "bytes": self.bytes,
            "damaged": list(self.damaged),
        }


def newest_checkpoint(remote: Remote, places: Places, folder: str) -> Newest:
    """Verify the checkpoints of a run there, the newest first, until one is whole.

    Args:
        folder: the run's directory on the host.

    Raises:
        RemoteError: there is no environment on the host, or its voicehub cannot do it.
    """
    request = {"folder": folder}
    found = run_program(remote, places, "newest", request, what="verify the checkpoints there")
    if found is None:
        return Newest(folder)
    return Newest(
        folder, found["checkpoint"], found["step"], found["bytes"], tuple(found["damaged"])
    )

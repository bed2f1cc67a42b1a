"""What an extraction is, and what of it is done already."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.files import write_file
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.rows import rows_digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUP_ROWS = 32
"""Rows that are embedded and stored together: fixed, so that where a run was interrupted, and how
many processes shared it, changes no result."""

PARTS = ".parts"
JOB_FILE = "job.json"


@dataclass(frozen=True)
class ExtractionSettings:
    """How recordings become embeddings.

    Attributes:
        chunk_seconds: longer recordings are cut into equal pieces of at most this; their embedding
            is the mean of the pieces', weighted by seconds.
        energy_vad: leave out what is silent.
        batch_size: pieces that share a forward.
    """

    chunk_seconds: float = 30.0
    energy_vad: bool = False
    batch_size: int = 8

    def __post_init__(self) -> None:
        if not self.chunk_seconds >= 0.5:
            raise ConfigurationError(f"chunk_seconds must be >= 0.5, got {self.chunk_seconds}.")
        if self.batch_size < 1:
            raise ConfigurationError(f"batch_size must be >= 1, got {self.batch_size}.")


@dataclass(frozen=True)
class Failure:
    """A row without an embedding, and why."""

    id: str
    location: str
    reason: str


@dataclass(frozen=True, eq=False)
class GroupResult:
    """What came of the rows of one group, in their order.

    Attributes:
        positions: int64 (n,), rows of the manifest that have an embedding.
        vectors: float32 (n, D).
        durations: float64 (n,), seconds of audio in the file.
        speech: float64 (n,), seconds that the embedding was made from.
        failures: the other rows.
    """

    positions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    durations: NDArray[np.float64]
    speech: NDArray[np.float64]
    failures: tuple[Failure, ...]


def job_identity(
    model: Path, rows: Sequence[ManifestRow], settings: ExtractionSettings
) -> dict[str, Any]:
    """What must be equal for two extractions to give equal embeddings."""
    return {
        "model_sha256": directory_digest(model),
        "rows_sha256": rows_digest(rows),
        "rows": len(rows),
        **asdict(settings),
    }


def directory_digest(directory: Path) -> str:
    """SHA-256 (hex) over the names and contents of all files below a directory."""
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(directory).as_posix()} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


class PartsDirectory:
    """Groups that are done, one file each, below the output directory."""

    def __init__(self, output: Path, identity: dict[str, Any]) -> None:
        self._directory = output / PARTS
        self._identity = identity

    def open(self, *, restart: bool) -> None:
        """Begin, or go on where the same job was interrupted.

        Raises:
            DataError: parts of another job lie there.
        """
        if restart:
            self.remove()
        file = self._directory / JOB_FILE
        if file.is_file():
            there = self._there(file)
            other = [key for key, value in self._identity.items() if there.get(key) != value]
            if other:
                raise DataError(
                    f"{self._directory} holds parts of another extraction (other "
                    f"{', '.join(other)}). Choose another directory, or discard them with "
                    "--restart."
                )
        else:
            write_file(file, json.dumps(self._identity, indent=2).encode())

    def _there(self, file: Path) -> dict[str, Any]:
        """What the parts that lie there are of."""
        try:
            there = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            there = None
        if not isinstance(there, dict):
            raise DataError(
                f"{file}: damaged, so nobody can tell what its parts are of. Discard them with "
                "--restart."
            )
        return there

    def done(self, group: int) -> bool:
        """Whether a group is complete and sound; one with failures is not: they may be mended."""
        if not self._path(group).is_file():
            return False
        try:
            return not self.read(group).failures
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return False  # half written, by a disk that was full or a machine that went down

    def write(self, group: int, result: GroupResult) -> None:
        """Store a group in one step."""
        buffer = io.BytesIO()
        failures = json.dumps([asdict(failure) for failure in result.failures])
        np.savez(
            buffer,
            positions=result.positions,
            vectors=result.vectors,
            durations=result.durations,
            speech=result.speech,
            failures=np.array(failures),
        )
        write_file(self._path(group), buffer.getvalue())

    def read(self, group: int) -> GroupResult:
        """The stored group."""
        with np.load(self._path(group), allow_pickle=False) as held:
            failures = [Failure(**item) for item in json.loads(str(held["failures"]))]
            return GroupResult(
                held["positions"],
                held["vectors"],
                held["durations"],
                held["speech"],
                tuple(failures),
            )

    def remove(self) -> None:
        """Take the parts away."""
        if self._directory.is_dir():
            shutil.rmtree(self._directory)

    def _path(self, group: int) -> Path:
        return self._directory / f"{group:07d}.npz"

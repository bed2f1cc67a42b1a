"""Codes of a corpus on disk: encoded once, named by content and codec.

A cache is a folder of shards, ``<codec>/<content of the shard>.safetensors``, each written whole
or not at all. A clip's key is the SHA-256 of its file's bytes and of the segment taken from it, so
that a renamed file is not encoded again, and a changed one is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voicehub.errors import CheckpointError, DataError
from voicehub_codec_lm.codecs.base import AudioCodec
from voicehub_codec_lm.codecs.corpus import CorpusCodecConfig
from voicehub_data.audio import load_audio
from voicehub_data.manifest import ManifestRow
from voicehub_data.row_audio import SILENCE_NOTES

#: Clips of one shard: what is lost at most when encoding is interrupted.
SHARD_CLIPS = 256
_BLOCK = 1 << 20

Progress = Callable[[int, int], None]


class TokenCache:
    """Codes by clip, as far as they are on disk.

    Args:
        directory: shared by all codecs; made where missing.
        codec: whose codes these are.
    """

    def __init__(self, directory: str | Path, codec: AudioCodec) -> None:
        self.codec = codec
        self.directory = Path(directory) / codec.identity()["sha256"][:32]
        self._shards: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}  # mapped into memory, read clip by clip
        for path in sorted(self.directory.glob("*.safetensors")):
            self._index(path)

    def __len__(self) -> int:
        return len(self._shards)

    def __contains__(self, key: str) -> bool:
        return key in self._shards

    def codes(self, key: str) -> Tensor:
        """Codes int64 (codebooks, frames) of a clip by its key.

        Raises:
            DataError: the clip is not in the cache.
        """
        path = self._shards.get(key)
        if path is None:
            raise DataError(
                f"clip {key[:16]}… is not in {self.directory}; was its file changed after it was "
                "encoded?"
            )
        opened = self._open.get(path)
        if opened is None:
            opened = self._open[path] = _opened(path)
        codes: Tensor = opened.get_tensor(key)
        return codes.long()

    def fill(self, rows: Sequence[ManifestRow], progress: Progress | None = None) -> list[str]:
        """Encode what is missing; return the key of every row.

        Args:
            rows: clips.
            progress: told how many of the missing clips are done, shard by shard.
        """
        keys = clip_keys(rows)
        missing: dict[str, ManifestRow] = {}
        for key, row in zip(keys, rows, strict=True):
            if key not in self._shards:
                missing.setdefault(key, row)
        done = 0
        for part in _parts(list(missing.items()), SHARD_CLIPS):
            made = {key: self.codec.encode(row_audio(row, self.codec)) for key, row in part}
            self._write(made)
            done += len(made)
            if progress is not None:
                progress(done, len(missing))
        return keys

    def _write(self, codes: dict[str, Tensor]) -> None:
        from safetensors.torch import save_file

        narrow = torch.int16 if self.codec.codebook_size <= 1 << 15 else torch.int32
        tensors = {key: value.to(narrow).contiguous() for key, value in codes.items()}
        name = hashlib.sha256("".join(sorted(tensors)).encode()).hexdigest()[:32]
        path = self.directory / f"{name}.safetensors"
        self.directory.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            save_file(tensors, part, metadata={"codec": self.codec.identity()["sha256"]})
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        for key in tensors:
            self._shards[key] = path

    def _index(self, path: Path) -> None:
        for key in _opened(path).keys():  # noqa: SIM118 - a file, not a mapping
            self._shards[key] = path

    def __getstate__(self) -> dict[str, Any]:
        # Workers read shards; they never encode.
        return {**self.__dict__, "_open": {}, "codec": None}


def row_audio(row: ManifestRow, codec: AudioCodec | CorpusCodecConfig) -> Tensor:
    """Audio of a row, float32 (samples,), as a codec takes it."""
    audio = load_audio(
        row.audio_filepath,
        sample_rate=codec.sample_rate,
        offset=row.offset,
        duration=row.duration if row.is_segment else None,
    )
    SILENCE_NOTES.look_at(audio, row)
    return torch.from_numpy(audio)


def clip_keys(rows: Sequence[ManifestRow]) -> list[str]:
    """The key of every row: SHA-256 of the file's bytes, and of the segment taken from it."""
    of_file: dict[Path, str] = {}
    keys = []
    for row in rows:
        path = Path(row.audio_filepath)
        if path not in of_file:
            of_file[path] = _digest(path)
        digest = of_file[path]
        if row.is_segment:
            text = f"{digest} {row.offset!r} {row.duration!r}"
            digest = hashlib.sha256(text.encode()).hexdigest()
        keys.append(digest)
    return keys


def _opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. Delete it: its clips are encoded again."
        ) from error


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()


def _parts(
    items: list[tuple[str, ManifestRow]], size: int
) -> Iterator[list[tuple[str, ManifestRow]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]

"""Open a feature store, check what can be checked without reading it, and read clips by id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voicehub.data.packed_rows import PackedRows
from voicehub.errors import DataError
from voicehub_flow.store import layout
from voicehub_flow.store.index import (
    ROWS_FILE,
    STORE_FILE,
    StoreIndex,
    digest_of,
    has_index,
    read_index,
)
from voicehub_flow.store.layout import StoredTensor
from voicehub_flow.store.statistics import ChannelStatistics
from voicehub_flow.store.tables import named, require_unique

#: Sizes of one clip's tensor; None where any is right.
RowShape = tuple[int | None, ...]
_STATISTICS_BYTES = 32 << 20


class FeatureStore:
    """A store on disk. Only ids and digests are in memory; clips are read one by one.

    Use :func:`open_store`.

    Attributes:
        directory: where it lies.
        shards: tensors of every shard, by name.
        index: what is known of the whole, without its rows; None for a store in the plain
            published layout.
        ids: of the clips in their order; None where the store has none.
        texts: labels or captions; empty texts where the store has none.
    """

    def __init__(
        self,
        directory: Path,
        shards: Sequence[Mapping[str, StoredTensor]],
        index: StoreIndex | None,
    ) -> None:
        self.directory = directory
        # Its rows, an object a clip, are taken over below.
        self.index = None if index is None else replace(index, rows=())
        self.shards = [dict(shard) for shard in shards]
        self._digests: PackedRows[Mapping[str, str]] | None = None
        if index is None:
            self.ids = _ids_within(self.shards[0], directory)
            count = next(iter(self.shards[0].values())).shape[0]
            self.texts: Sequence[str] = [""] * count
            self._places = np.stack([np.zeros(count, np.int64), np.arange(count)], 1)
        else:
            self.ids = [row.id for row in index.rows]
            self.texts = [row.text for row in index.rows]
            self._places = np.array([(row.shard, row.row) for row in index.rows], dtype=np.int64)
            self._digests = PackedRows(dict(row.digests) for row in index.rows)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """The tensors of the first shard, whose names, row shapes and dtypes all shards have."""
        return self.shards[0]

    @property
    def has_checksums(self) -> bool:
        """Whether damage is found when a clip is read."""
        return self._digests is not None

    @property
    def has_video(self) -> bool:
        """Whether clips have both features of a video."""
        return layout.CLIP in self.tensors and layout.SYNC in self.tensors

    def read(self, position: int, names: Sequence[str], *, check: bool = True) -> dict[str, Tensor]:
        """Tensors of one clip, in the stored dtype.

        Args:
            position: in the store's order.
            names: which tensors.
            check: compare with the digests, where the store has some.

        Raises:
            DataError: the bytes are not those that were written; names clip, tensor and file.
        """
        shard, row = self._places[position].tolist()
        digests = self._digests[position] if check and self._digests is not None else {}
        found = {}
        for name in names:
            stored = self.shards[shard][name]
            content = stored.read_bytes(row)
            if name in digests and digest_of(content) != digests[name]:
                raise DataError(
                    f"{stored.path}, row {row} (clip {self.describe(position)}): {name} is not "
                    "what was written: a byte was changed, or rows were exchanged. `voicehub "
                    f"features verify {self.directory}` lists every such clip."
                )
            found[name] = torch.frombuffer(content, dtype=stored.dtype).reshape(stored.row_shape)
        return found

    def digests(self, position: int) -> Mapping[str, str]:
        """What was noted of a clip's tensors when it was written; empty without checksums."""
        return {} if self._digests is None else self._digests[position]

    def place(self, position: int, name: str) -> tuple[StoredTensor, int]:
        """File and row of a clip's tensor."""
        shard, row = self._places[position].tolist()
        return self.shards[shard][name], row

    def describe(self, position: int) -> str:
        """Id of a clip, or its row where the store has no ids."""
        return f"row {position}" if self.ids is None else repr(self.ids[position])

    def latent_statistics(self) -> ChannelStatistics:
        """Statistics of all valid frames of the latents' means.

        Those of the index, or a pass over the whole tensor, a few megabytes at a time.
        """
        if self.index is not None and self.index.statistics is not None:
            return self.index.statistics
        return statistics_of(self.shards)

    def fingerprint(self) -> str:
        """SHA-256 (hex) that differs where clips do; without checksums, where sizes do."""
        digest = hashlib.sha256()
        for shard in self.shards:
            for name, tensor in sorted(shard.items()):
                digest.update(f"{name} {tensor.shape} {tensor.dtype}\n".encode())
        if self._digests is not None:
            digest.update(hashlib.sha256((self.directory / ROWS_FILE).read_bytes()).digest())
        return digest.hexdigest()


def open_store(
    directory: str | Path,
    *,
    required: Sequence[str] = layout.AUDIO_TENSORS,
    expected: Mapping[str, RowShape] | None = None,
) -> FeatureStore:
    """Open a store of ours, or a directory in the published layout.

    Args:
        directory: the store.
        required: tensors that must be there.
        expected: shape of one clip's tensor, by name; None in it fits any size.

    Raises:
        DataError: not a store, or a tensor is missing or has another shape or dtype; the message
            lists everything that is wrong with it.
    """
    directory = Path(directory).expanduser()
    if not directory.is_dir():
        raise DataError(f"{directory}: no such directory; expected a feature store.")
    index = read_index(directory) if has_index(directory) else None
    names = ["."] if index is None else list(index.shards)
    shards = [layout.read_layout(directory / name) for name in names]
    if index is not None:
        _check_shards(directory, index, dict(zip(names, shards, strict=True)))
    problems = _problems(shards[0], required, expected or {})
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise DataError(f"{directory}: the store is not what is needed:\n{listed}")
    return FeatureStore(directory, shards, index)


def statistics_of(shards: Sequence[Mapping[str, StoredTensor]]) -> ChannelStatistics:
    """Statistics of the latents of shards, read piece by piece."""
    total: ChannelStatistics | None = None
    for shard in shards:
        mean = shard[layout.MEAN]
        step = max(1, _STATISTICS_BYTES // max(1, mean.row_bytes))
        for start in range(0, mean.shape[0], step):
            count = min(step, mean.shape[0] - start)
            rows = mean.rows(start, count)
            frames = shard[layout.FRAMES].rows(start, count) if layout.FRAMES in shard else None
            found = ChannelStatistics.of(valid_frames(rows, frames))
            total = found if total is None else total.merged(found)
    assert total is not None
    return total


def valid_frames(latents: Tensor, frames: Tensor | None) -> Tensor:
    """(n, channels) of latents (clips, frames, channels): those that count."""
    if frames is None:
        return latents.flatten(0, 1)
    positions = torch.arange(latents.shape[1])
    valid: Tensor = latents[positions < frames[:, None]]
    return valid


def _check_shards(
    directory: Path, index: StoreIndex, shards: Mapping[str, Mapping[str, StoredTensor]]
) -> None:
    first = next(iter(shards.values()), None)
    if first is None:
        raise DataError(f"{directory / STORE_FILE}: names no shard, so the store is empty.")
    for name, shard in shards.items():
        count = next(iter(shard.values())).shape[0]
        if count != index.shards[name]:
            raise DataError(
                f"{directory / name}: {count} clips; {STORE_FILE} says {index.shards[name]}."
            )
        for tensor in first.keys() | shard.keys():
            own, other = shard.get(tensor), first.get(tensor)
            if own is None or other is None or _kind(own) != _kind(other):
                raise DataError(
                    f"{directory / name}: {tensor} is {_kind(own)}, in the first shard "
                    f"{_kind(other)}; the shards are not of one extraction."
                )
    counts = list(index.shards.values())
    seen = {(row.shard, row.row) for row in index.rows}
    if len(seen) != len(index.rows) or seen != {
        (shard, row) for shard, count in enumerate(counts) for row in range(count)
    }:
        raise DataError(f"{directory / ROWS_FILE}: does not name every row of the shards once.")


def _kind(tensor: StoredTensor | None) -> str:
    return "missing" if tensor is None else f"{list(tensor.row_shape)} of {tensor.dtype}"


def _problems(
    tensors: Mapping[str, StoredTensor],
    required: Sequence[str],
    expected: Mapping[str, RowShape],
) -> list[str]:
    problems = [
        f"{name}: missing; the store has {', '.join(sorted(tensors))}"
        for name in required
        if name not in tensors
    ]
    for name in required:
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if not tensor.dtype.is_floating_point:
            problems.append(f"{name}: {tensor.dtype}; expected floating-point numbers")
        shape = expected.get(name, (None, None))
        fits = len(shape) == len(tensor.row_shape) and all(
            size in (None, found) for size, found in zip(shape, tensor.row_shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            problems.append(
                f"{name}: a clip has the shape {list(tensor.row_shape)}; expected [{wanted}]"
            )
    mean, std = tensors.get(layout.MEAN), tensors.get(layout.STD)
    if mean is not None and std is not None and mean.row_shape != std.row_shape:
        problems.append(f"std has the shape {list(std.row_shape)}, mean {list(mean.row_shape)}")
    frames = tensors.get(layout.FRAMES)
    if frames is not None and (frames.dtype != torch.int64 or frames.row_shape):
        problems.append(f"frames: {_kind(frames)}; expected one int64 a clip")
    return problems


def _ids_within(tensors: Mapping[str, StoredTensor], directory: Path) -> list[str] | None:
    """Ids that the TensorDict itself holds as a tensor ``id``."""
    stored = tensors.get(layout.IDS)
    if stored is None:
        return None
    rows: Any = stored.rows(0, stored.shape[0])
    if stored.dtype == torch.int64 and not stored.row_shape:
        ids = [str(number) for number in rows.tolist()]
    elif stored.dtype == torch.uint8 and len(stored.row_shape) == 1:
        ids = [bytes(row.tolist()).rstrip(b"\0").decode("utf-8") for row in rows]
    else:
        raise DataError(
            f"{stored.path}: ids are int64 (clips,), or uint8 (clips, bytes) of UTF-8; found "
            f"{_kind(stored)}."
        )
    require_unique(ids, str(stored.path))
    return ids


def missing_ids(wanted: Sequence[str], store: FeatureStore) -> str:
    """For messages: which of some ids a store does not have."""
    have = set(store.ids or ())
    return named([name for name in wanted if name not in have])

"""From a set's configuration to the clips of its store that are used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voicehub.adapters.experiment import SplitReport
from voicehub.errors import DataError
from voicehub_flow.store import layout
from voicehub_flow.store.config import StoreSetConfig
from voicehub_flow.store.reader import FeatureStore, RowShape, missing_ids, open_store
from voicehub_flow.store.tables import StoreTable, read_table

_NO_IDS = (
    "{store} holds no ids, so its clips cannot be joined by id. Give it ids and checksums once, "
    "with `voicehub features index {store} TSV`, or state that line i of a table is row i of the "
    "store: {setting}.join=row and {setting}.tsv=TSV."
)


@dataclass(frozen=True)
class ClipSet:
    """Clips of one store.

    Attributes:
        name: for messages and ids.
        store: where they are read.
        positions: int64 (clips,), in the store's order.
        ids, texts: of one length with them.
        has_video: whether their video features are used.
        rate: draws of each clip an epoch.
        report: what was kept and dropped.
    """

    name: str
    store: FeatureStore
    positions: np.ndarray[tuple[int], np.dtype[np.int64]]
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    has_video: bool
    rate: float
    report: SplitReport

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> tuple[str, ...]:
        """Tensors that are read of each clip."""
        read = layout.VIDEO_TENSORS if self.has_video else layout.AUDIO_TENSORS
        return (*read, layout.FRAMES) if layout.FRAMES in self.store.tensors else read

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) that differs where clips do."""
        digest = hashlib.sha256(self.store.fingerprint().encode())
        digest.update(repr(self.ids).encode("utf-8", "surrogatepass"))
        digest.update(self.positions.tobytes() + bytes([self.has_video]))
        return digest.hexdigest()


def open_set(
    name: str,
    config: StoreSetConfig,
    *,
    setting: str,
    expected: Mapping[str, RowShape] | None = None,
    max_drop_fraction: float = 0.0,
) -> ClipSet:
    """Open the store of a set and join its table.

    Args:
        name: of the set.
        config: its configuration.
        setting: dotted key of the configuration, for messages.
        expected: shape of one clip's tensor, by name.
        max_drop_fraction: of the table's clips that may be missing in the store.

    Raises:
        DataError: the store is not what is needed, a modality is missing, the table does not fit,
            or too many of its clips are not in the store.
    """
    required = layout.VIDEO_TENSORS if config.kind == "video" else layout.AUDIO_TENSORS
    store = open_store(config.path, required=required, expected=expected)
    has_video = config.kind != "audio" and _video_of(store, setting, config, expected)
    table = None if config.tsv is None else read_table(config.tsv)
    positions, ids, texts, lost = _joined(store, table, config, setting, max_drop_fraction)
    if not ids:
        raise DataError(f"{setting}: no clip of {config.tsv or config.path} can be used.")
    notes = [_checksum_note(store)]
    total = len(table) if table is not None else len(store)
    unused = len(store) - len(ids) if table is not None else 0
    if unused:
        notes.append(f"{unused:,} clips of {store.directory} are not in {config.tsv}")
    notes.append("with video" if has_video else "without video: its features count as absent")
    dropped = {"not-in-store": lost} if lost else {}
    seconds = _seconds(store, len(ids))
    report = SplitReport(name, total, len(ids), dropped, seconds, notes)
    return ClipSet(name, store, positions, ids, texts, has_video, config.rate, report)


def _video_of(
    store: FeatureStore,
    setting: str,
    config: StoreSetConfig,
    expected: Mapping[str, RowShape] | None,
) -> bool:
    """Whether a set has video features; one of the two alone is an error."""
    there = [name for name in (layout.CLIP, layout.SYNC) if name in store.tensors]
    if not there:
        return False
    if len(there) == 1:
        raise DataError(
            f"{store.directory}: holds {there[0]} without the other video features "
            f"({layout.CLIP} and {layout.SYNC} belong together). Extract it, or leave the video "
            f"out with {setting}.kind=audio."
        )
    open_store(config.path, required=there, expected=expected)
    return True


def _joined(
    store: FeatureStore,
    table: StoreTable | None,
    config: StoreSetConfig,
    setting: str,
    max_drop_fraction: float,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], tuple[str, ...], tuple[str, ...], int]:
    if config.join == "row":
        return _by_row(store, table, setting)
    if store.ids is None:
        raise DataError(_NO_IDS.format(store=store.directory, setting=setting))
    if table is None:
        everything = np.arange(len(store), dtype=np.int64)
        return everything, tuple(store.ids), tuple(store.texts), 0
    place = {name: number for number, name in enumerate(store.ids)}
    found = [
        (place[name], name, text)
        for name, text in zip(table.ids, table.texts, strict=True)
        if name in place
    ]
    lost = len(table) - len(found)
    if lost > max_drop_fraction * len(table):
        raise DataError(
            f"{setting}: {lost:,} of {len(table):,} clips of {table.path} are not in "
            f"{store.directory}: {missing_ids(table.ids, store)}. Extract them, take them out of "
            f"the table, or allow it with data.max_drop_fraction (now {max_drop_fraction:g})."
        )
    # In the store's order, so that shuffling the table changes nothing.
    found.sort()
    positions = np.array([number for number, _, _ in found], dtype=np.int64)
    texts = tuple(text or store.texts[number] for number, _, text in found)
    return positions, tuple(name for _, name, _ in found), texts, lost


def _by_row(
    store: FeatureStore, table: StoreTable | None, setting: str
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], tuple[str, ...], tuple[str, ...], int]:
    if table is None:
        raise DataError(f"{setting}.join=row needs {setting}.tsv: its line i is row i.")
    if store.ids is not None:
        raise DataError(
            f"{setting}.join=row: {store.directory} has ids, so that its clips are joined by them; "
            f"leave {setting}.join out."
        )
    if len(table) != len(store):
        raise DataError(
            f"{setting}.join=row: {table.path} has {len(table):,} clips, {store.directory} "
            f"{len(store):,} rows; line i of the one would not be row i of the other."
        )
    return np.arange(len(store), dtype=np.int64), table.ids, table.texts, 0


def _checksum_note(store: FeatureStore) -> str:
    if store.has_checksums:
        return f"{store.directory}: joined by id, with checksums"
    how = "joined by row" if store.ids is None else "joined by id"
    return (
        f"{store.directory}: {how}, without checksums: damage and exchanged clips would pass; "
        f"`voicehub features index {store.directory} TSV` adds both"
    )


def _seconds(store: FeatureStore, clips: int) -> float:
    """Seconds of audio, as far as the extraction noted them."""
    record = {} if store.index is None else store.index.record
    total = float(record.get("seconds", 0.0))
    return total * clips / len(store) if len(store) else 0.0


def default_name(path: str, position: int) -> str:
    """Name of a set that has none: its directory's, with its place among the sets."""
    return f"{position}-{Path(path).name}"

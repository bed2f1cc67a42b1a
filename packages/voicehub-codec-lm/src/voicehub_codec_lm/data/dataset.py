"""Utterances as prompts and codes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from voicehub.data.keyed_random import SampleKey
from voicehub.data.packed_rows import PackedRows
from voicehub_codec_lm.codecs.cache import TokenCache
from voicehub_data.manifest import ManifestRow
from voicehub_data.manifest.rows import rows_digest
from voicehub_data.row_dataset import RowDataset


class CodecItem(NamedTuple):
    """One utterance.

    Attributes:
        id: of its row.
        prompt: tokens of text and speaker.
        codes: int64 (codebooks, frames).
        text: as the manifest has it, normalised.
        seconds: of its audio.
        key: names the draw; None outside training.
    """

    id: str
    prompt: tuple[int, ...]
    codes: Tensor
    text: str
    seconds: float
    key: SampleKey | None


class CodecDataset(RowDataset[CodecItem]):
    """Codes of a split, from the cache on disk.

    Args:
        rows, prompts, keys: in one order; keys are those of the cache.
        cache: filled.
    """

    def __init__(
        self,
        rows: Sequence[ManifestRow],
        prompts: Sequence[tuple[int, ...]],
        keys: Sequence[str],
        cache: TokenCache,
    ) -> None:
        self.rows = PackedRows(rows)
        self.prompts, self.keys, self.cache = list(prompts), list(keys), cache
        self.codec = cache.codec.identity()

    def get_item(self, index: int, key: SampleKey | None) -> CodecItem:
        row, codes = self.rows[index], self.cache.codes(self.keys[index])
        return CodecItem(row.id, self.prompts[index], codes, row.text, row.duration or 0.0, key)

    def resume_fingerprint(self) -> dict[str, Any]:
        """JSON that changes when items would."""
        keys = hashlib.sha256("".join(self.keys).encode()).hexdigest()
        return {
            "rows_sha256": rows_digest(self.rows),
            "prompts_sha256": hashlib.sha256(repr(self.prompts).encode()).hexdigest(),
            "clips_sha256": keys,
            "codec": self.codec,
        }

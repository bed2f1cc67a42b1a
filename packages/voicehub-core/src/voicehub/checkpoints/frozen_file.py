"""Weights that a run never changes: in a file of their own, on disk once for all checkpoints.

Each checkpoint has the file and its digest, so that it can be read, verified and copied alone; but
where an earlier checkpoint of the run holds the same bytes, the file is another name of that one
(a hard link) and takes neither space nor time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from voicehub.checkpoints.layout import FROZEN_FILE, list_checkpoints
from voicehub.checkpoints.manifest import FileDigest, hash_file
from voicehub.checkpoints.rotation import checkpoint_run_id
from voicehub.checkpoints.tensor_file import digest_of_tensors, write_tensors


def write_frozen(
    path: Path, tensors: Mapping[str, torch.Tensor], run_dir: Path, run_id: str
) -> FileDigest:
    """Make ``path`` a safetensors file of these tensors, and return its digest.

    An earlier file is only linked after its bytes were read and found to be the same: neither a
    recipe that moves frozen weights by hand nor a disk that lost some bits spoils what follows.
    """
    earlier = _earlier_file(run_dir, run_id)
    if earlier is not None:
        digest = digest_of_tensors(tensors)
        try:
            if hash_file(earlier) == digest:
                os.link(earlier, path)
                return digest
        except OSError:  # gone meanwhile, or a file system without links
            path.unlink(missing_ok=True)
    return write_tensors(path, tensors)


def _earlier_file(run_dir: Path, run_id: str) -> Path | None:
    for checkpoint in reversed(list_checkpoints(run_dir)):
        path = checkpoint / FROZEN_FILE
        if path.is_file() and checkpoint_run_id(checkpoint) == run_id:
            return path
    return None

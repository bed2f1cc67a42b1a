"""Where the checkpoints that a configuration names are: on disk, or in the hub's cache.

The cache is huggingface_hub's own, so that whatever loads a model finds it: ``HF_HUB_CACHE``, or
``HF_HOME/hub``. No network is touched here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from voicehub.models.artifact import artifact_directory
from voicehub.models.assets import MISSING, PRESENT, REMOTE, Asset, AssetState
from voicehub.plugins.hooks import hookimpl
from voicehub_hf.hub.verify import checkpoint_files, problems_of

_COMMIT = re.compile(r"[0-9a-f]{40}")


@hookimpl
def voicehub_locate_assets(assets: Sequence[Asset]) -> list[AssetState]:
    """Hook: where each checkpoint is, without fetching any."""
    return [locate(asset) for asset in assets]


def locate(asset: Asset) -> AssetState:
    """Where one checkpoint is; what is incomplete counts as missing."""
    path = asset.local_path
    if path is not None:
        return _local(asset, path)
    cached = cached_snapshot(asset.source, asset.revision)
    if cached is not None and not problems_of(cached):
        return present(asset, cached)
    detail = f"not in the cache {cache_directory()}"
    if cached is not None:
        detail = f"incomplete in the cache ({'; '.join(problems_of(cached))})"
    if asset.local_only or is_offline():
        why = "local_files_only is set" if asset.local_only else "HF_HUB_OFFLINE is set"
        return AssetState(asset, MISSING, detail=f"{detail}, and {why}")
    return AssetState(asset, REMOTE, detail=detail)


def present(asset: Asset, snapshot: Path) -> AssetState:
    """The state of a snapshot in the cache; its folder is named by the commit."""
    commit = snapshot.name
    detail = ""
    if not is_commit(asset.revision):
        setting = f"{asset.setting.rpartition('.')[0]}.revision".lstrip(".")
        detail = f"not pinned; {setting}={commit} would be"
    return AssetState(asset, PRESENT, snapshot, checkpoint_files(snapshot), commit, detail)


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a commit's full hash, which never moves."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def cached_snapshot(repository: str, revision: str | None) -> Path | None:
    """The folder of a revision in the cache; None where nothing of it is there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(
        repository, "config.json", cache_dir=str(cache_directory()), revision=revision
    )
    return Path(found).parent if isinstance(found, str) else None


def cache_directory() -> Path:
    """The hub's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def is_offline() -> bool:
    """Whether the environment forbids asking the hub."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _local(asset: Asset, path: Path) -> AssetState:
    directory = artifact_directory(path)
    if not directory.is_dir():
        return AssetState(asset, MISSING, detail="there is no such directory")
    problems = problems_of(directory)
    if problems:
        return AssetState(asset, MISSING, directory, detail="; ".join(problems))
    return AssetState(asset, PRESENT, directory, checkpoint_files(directory))

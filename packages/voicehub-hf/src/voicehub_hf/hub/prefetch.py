"""Filling the hub's cache before a run starts: one process fetches, the others wait for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from voicehub.models.assets import MISSING, PRESENT, REMOTE, Asset, AssetState, locate_assets
from voicehub_hf.hub.cache import cache_directory, cached_snapshot, is_offline, present
from voicehub_hf.hub.repository import ENDPOINT_VARIABLE, describe
from voicehub_hf.hub.verify import problems_of

logger = logging.getLogger(__name__)

LOCK_FILE = ".voicehub-prefetch.lock"
#: Beside the weights: configurations, vocabularies, tokenizer models, chat templates.
_SMALL_FILES = frozenset({".json", ".txt", ".model", ".jinja", ".vocab", ".merges"})
_WEIGHTS, _WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"


def prefetch(assets: Sequence[Asset]) -> list[AssetState]:
    """Fetch what is not here, verify what is, and say where everything lies.

    Processes that share a cache may all call this: one at a time looks and fetches, and what it
    has fetched the next ones find. Nothing that goes wrong with one asset hides another.
    """
    located = locate_assets(assets)
    if not any(_concerns_hub(state) for state in located):
        return located
    with _only_one():
        return [_fetched(state) if _concerns_hub(state) else state for state in located]


def _concerns_hub(state: AssetState) -> bool:
    """A branch that is in the cache may have moved on the hub; a missing file is missing."""
    if state.asset.kind == "dataset":
        return True
    on_hub = state.asset.kind == "checkpoint" and state.asset.local_path is None
    return on_hub and not state.asset.local_only and not is_offline()


def _fetched(state: AssetState) -> AssetState:
    asset = state.asset
    try:
        if asset.fetch is not None:
            asset.fetch()
            return AssetState(asset, PRESENT, detail="in the cache of its own library")
        return _from_hub(asset)
    except Exception as error:  # whatever it is, the other assets are still looked at
        return AssetState(asset, MISSING, detail=describe(error))


def _from_hub(asset: Asset) -> AssetState:
    from huggingface_hub import snapshot_download

    try:
        wanted = _wanted_files(asset)
    except Exception as error:
        if not _is_unreachable(error):
            raise
        return _from_cache_alone(asset, error)
    snapshot_download(
        asset.source,
        revision=asset.revision,
        allow_patterns=[_literal(name) for name in wanted],
        cache_dir=cache_directory(),
        endpoint=os.environ.get(ENDPOINT_VARIABLE) or None,
    )
    snapshot = cached_snapshot(asset.source, asset.revision)
    problems = ["config.json is missing"] if snapshot is None else problems_of(snapshot)
    if snapshot is None or problems:
        return AssetState(asset, MISSING, snapshot, detail="; ".join(problems))
    return present(asset, snapshot)


def _wanted_files(asset: Asset) -> list[str]:
    """Names of what a training run reads of a repository."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get(ENDPOINT_VARIABLE) or None)
    info = api.model_info(asset.source, revision=asset.revision)
    return choose_files([sibling.rfilename for sibling in info.siblings or []])


def choose_files(names: Sequence[str]) -> list[str]:
    """Of a repository's files: small ones at its root, and one set of weights in safetensors.

    Repositories often hold the same weights several times; transformers reads
    ``model.safetensors`` or the shards of its index.
    """
    root = [name for name in names if "/" not in name and not name.startswith(".")]
    small = [name for name in root if PurePosixPath(name).suffix in _SMALL_FILES]
    weights = [name for name in root if name.endswith(".safetensors")]
    if _WEIGHTS in weights:
        weights = [_WEIGHTS]
    elif _WEIGHTS_INDEX in root:
        weights = [name for name in weights if name.startswith("model-")]
    return sorted({*small, *weights})


def _from_cache_alone(asset: Asset, error: Exception) -> AssetState:
    snapshot = cached_snapshot(asset.source, asset.revision)
    why = f"the hub does not answer ({describe(error)})"
    if snapshot is None:
        return AssetState(asset, MISSING, detail=f"{why}, and it is not in {cache_directory()}")
    problems = problems_of(snapshot)
    if problems:
        return AssetState(asset, MISSING, snapshot, detail=f"{why}; {'; '.join(problems)}")
    state = present(asset, snapshot)
    detail = "; ".join(part for part in (f"{why}: as it was cached", state.detail) if part)
    return AssetState(asset, PRESENT, snapshot, state.files, state.commit, detail)


def _is_unreachable(error: Exception) -> bool:
    """No answer at all, or one of a server in trouble, as opposed to a clear no."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return bool(status >= 500 or status == 429)
    return not isinstance(error, (ValueError, TypeError))


def _literal(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


@contextmanager
def _only_one() -> Iterator[None]:
    """Hold the cache's lock; says so when another process has it."""
    from filelock import FileLock, Timeout

    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    lock: Any = FileLock(directory / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("Waiting for another process that fills %s.", directory)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def summary_state(states: Sequence[AssetState]) -> bool:
    """Whether everything is here."""
    return not any(state.state in (MISSING, REMOTE) for state in states)

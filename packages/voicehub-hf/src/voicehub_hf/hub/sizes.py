"""What checkpoints and data sets on the hub weigh, as it tells: nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from voicehub.errors import DataError
from voicehub.models.assets import MISSING, REMOTE, Asset, AssetState
from voicehub.plugins.hooks import hookimpl
from voicehub_hf.hub.prefetch import choose_files
from voicehub_hf.hub.repository import ENDPOINT_VARIABLE, describe

#: Files of a data set's repository that are no data.
_NO_DATA = frozenset({".md", ".py", ".yaml", ".yml", ".gitattributes", ".gitignore"})


@hookimpl
def voicehub_size_assets(states: Sequence[AssetState]) -> list[AssetState]:
    """Hook: what is remote with the sizes of what a run reads; missing where none is told."""
    wanted = [s for s in states if s.state == REMOTE and s.asset.kind in _SIZED]
    return [_sized(state) for state in wanted]


def _sized(state: AssetState) -> AssetState:
    from huggingface_hub import HfApi

    try:
        api = HfApi(endpoint=os.environ.get(ENDPOINT_VARIABLE) or None)
        return _SIZED[state.asset.kind](api, state)
    except DataError as error:
        return replace(state, state=MISSING, detail=str(error))
    except Exception as error:  # the hub's client raises of many kinds
        return replace(state, state=MISSING, detail=f"the hub does not tell: {describe(error)}")


def _checkpoint(api: Any, state: AssetState) -> AssetState:
    asset = state.asset
    info = api.model_info(asset.source, revision=asset.revision, files_metadata=True)
    sizes = _listed(info)
    chosen = choose_files(list(sizes))
    if not any(name.endswith(".safetensors") for name in chosen):
        raise DataError("the hub lists no weights in safetensors")
    files = {name: _size(name, sizes[name]) for name in chosen}
    return replace(state, files=files, commit=info.sha, detail=_numbers(info))


def _numbers(info: Any) -> str:
    """What the headers of the weights say, where the hub has read them."""
    known = getattr(info.safetensors, "parameters", None)
    if not isinstance(known, Mapping) or not known:
        return ""
    return ", ".join(f"{count:,} numbers in {dtype}" for dtype, count in known.items())


def _dataset(api: Any, state: AssetState) -> AssetState:
    """By the card of the data set; where it says nothing, all files of data together."""
    asset = state.asset
    info = api.dataset_info(asset.source, revision=asset.revision, files_metadata=True)
    told = _by_card(info, asset)
    if told is not None:
        size = _size("its card", told)
        return replace(state, files={"download": size}, commit=info.sha, detail="by its card")
    listed = _listed(info)
    data = {name: size for name, size in listed.items() if _suffix(name) not in _NO_DATA}
    if not data:
        raise DataError("the hub lists no file of data")
    files = {name: _size(name, size) for name, size in data.items()}
    detail = "all its files; of several configurations or splits a run may fetch fewer"
    return replace(state, files=files, commit=info.sha, detail=detail)


def _by_card(info: Any, asset: Asset) -> Any:
    """What the card says has to be fetched for the configuration that is meant."""
    described = getattr(info.card_data, "dataset_info", None)
    entries = described if isinstance(described, list) else [described]
    known = [entry for entry in entries if isinstance(entry, Mapping)]
    wanted = asset.part or "default"
    named = [entry for entry in known if entry.get("config_name", "default") == wanted]
    if not named and asset.part is None and len(known) == 1:
        named = known
    return named[0].get("download_size") if named else None


def _listed(info: Any) -> dict[str, Any]:
    return {sibling.rfilename: sibling.size for sibling in info.siblings or []}


def _size(name: str, size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise DataError(f"the hub gives no size of {name} (found {size!r})")
    return size


def _suffix(name: str) -> str:
    path = PurePosixPath(name)
    return path.suffix.lower() or path.name


_SIZED = {"checkpoint": _checkpoint, "dataset": _dataset}

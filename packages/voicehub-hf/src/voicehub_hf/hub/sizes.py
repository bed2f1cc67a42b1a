"""What checkpoints on the hub weigh, from its list of files: nothing is fetched."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from voicehub.models.assets import MISSING, REMOTE, AssetState
from voicehub.plugins.hooks import hookimpl
from voicehub_hf.hub.prefetch import choose_files
from voicehub_hf.hub.repository import ENDPOINT_VARIABLE, describe


@hookimpl
def voicehub_size_assets(states: Sequence[AssetState]) -> list[AssetState]:
    """Hook: remote checkpoints with the sizes of what a run reads; missing where none answers."""
    wanted = [s for s in states if s.state == REMOTE and s.asset.kind == "checkpoint"]
    return [_sized(state) for state in wanted]


def _sized(state: AssetState) -> AssetState:
    from huggingface_hub import HfApi

    asset = state.asset
    try:
        api = HfApi(endpoint=os.environ.get(ENDPOINT_VARIABLE) or None)
        info = api.model_info(asset.source, revision=asset.revision, files_metadata=True)
    except Exception as error:  # the hub's client raises of many kinds
        return replace(state, state=MISSING, detail=f"the hub does not tell: {describe(error)}")
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or []}
    chosen = choose_files(list(sizes))
    unknown = [name for name in chosen if sizes[name] is None]
    if unknown:
        detail = f"the hub gives no size of {', '.join(unknown[:3])}"
        return replace(state, state=MISSING, detail=detail)
    files = {name: int(sizes[name] or 0) for name in chosen}
    return replace(state, files=files, commit=info.sha)

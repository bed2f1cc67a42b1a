"""What a run configuration names outside itself: checkpoints, artifacts, manifests, data sets.

A section of a configuration with the settings ``path``, ``revision`` and ``local_files_only``
names a checkpoint; a section that knows better has a method ``assets(setting)``, which returns
what it names. Nothing is opened here but directories, and no network is touched: how a hub is
asked is for the plugin that knows one, through the hook ``voicehub_locate_assets``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from voicehub.errors import AssetError, ConfigurationError
from voicehub.models.artifact import artifact_directory, read_artifact

Kind = Literal["checkpoint", "artifact", "file", "dataset"]

PRESENT, MISSING, REMOTE = "present", "missing", "remote"
_CHECKPOINT_SETTINGS = frozenset({"path", "revision", "local_files_only"})
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Asset:
    """One thing that a configuration names.

    Attributes:
        setting: dotted key that names it.
        source: local path, or id on a hub.
        kind: what it is.
        revision: branch, tag or commit on the hub.
        local_only: the hub is not to be asked.
        part: which of a data set's configurations is meant.
        look: where its own library keeps it; None where it is not there.
        fetch: brings what is no plain repository into its cache; such an asset cannot be looked
            up without that.
    """

    setting: str
    source: str
    kind: Kind = "checkpoint"
    revision: str | None = None
    local_only: bool = False
    part: str | None = None
    look: Callable[[], Path | None] | None = field(default=None, compare=False)
    fetch: Callable[[], object] | None = field(default=None, compare=False)

    @property
    def local_path(self) -> Path | None:
        """Where it lies or should lie on disk; None for what can only be on a hub."""
        path = Path(self.source).expanduser()
        typed_as_path = path.is_absolute() or self.source.startswith((".", "~"))
        if path.exists() or typed_as_path or self.kind in ("artifact", "file"):
            return path
        return None if _HUB_ID.fullmatch(self.source) else path


@dataclass(frozen=True)
class AssetState:
    """Where an asset is.

    Attributes:
        asset: which one.
        state: ``present`` on this machine, ``missing``, or ``remote``: to be fetched when needed.
        path: where it is, if it is here.
        files: sizes in bytes by relative name, where they are known.
        commit: of the hub's repository.
        detail: what is wrong, or what is worth knowing.
    """

    asset: Asset
    state: str
    path: Path | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    commit: str | None = None
    detail: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        asset = {k: v for k, v in vars(self.asset).items() if k not in ("look", "fetch")}
        own = {
            "state": self.state,
            "path": None if self.path is None else str(self.path),
            "files": dict(self.files),
            "commit": self.commit,
            "detail": self.detail,
        }
        return {**asset, **own}


def named_assets(config: Any) -> list[Asset]:
    """Everything that a run configuration names, each once, in its order.

    Args:
        config: a validated ``RunConfig``.
    """
    found = list(_walk(config, ""))
    if config.init_from is not None:
        found.append(Asset("init_from", config.init_from, "artifact"))
    return list(dict.fromkeys(found))


def _walk(value: Any, setting: str) -> Iterator[Asset]:
    own = getattr(value, "assets", None)
    fields = getattr(type(value), "__pydantic_fields__", None)
    if setting and callable(own):
        yield from own(setting)
    elif isinstance(fields, Mapping):
        if fields.keys() >= _CHECKPOINT_SETTINGS and value.path is not None:
            yield Asset(
                f"{setting}.path", value.path, "checkpoint", value.revision, value.local_files_only
            )
        for name in fields:
            yield from _walk(getattr(value, name), f"{setting}.{name}" if setting else name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{setting}.{key}")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _walk(item, f"{setting}.{position}" if len(value) > 1 else setting)


def locate_assets(assets: Iterable[Asset]) -> list[AssetState]:
    """Where each asset is; plugins that know a hub are asked about what is not a plain file."""
    assets = list(assets)
    known = {state.asset: state for state in _located_by_plugins(assets)}
    return [known.get(asset) or _on_disk(asset) for asset in assets]


def _located_by_plugins(assets: Sequence[Asset]) -> list[AssetState]:
    from voicehub.plugins import hooks

    return hooks.located_assets([asset for asset in assets if asset.kind == "checkpoint"])


def _on_disk(asset: Asset) -> AssetState:
    path = asset.local_path
    kept = None if path is not None or asset.look is None else asset.look()
    if kept is not None:
        return AssetState(asset, PRESENT, kept, detail="in the cache of its own library")
    if path is None:
        detail = "no plugin is installed that knows its hub"
        if asset.fetch is not None:
            detail = "not fetched yet, or not to be looked up without its own library"
        return AssetState(asset, REMOTE, detail=detail)
    if not path.exists():
        return AssetState(asset, MISSING, detail="there is no such file or directory")
    if asset.kind != "artifact":
        return AssetState(asset, PRESENT, path)
    directory = artifact_directory(path)
    try:
        read_artifact(directory)
    except ConfigurationError as error:
        return AssetState(asset, MISSING, detail=str(error))
    return AssetState(asset, PRESENT, directory)


def require_assets(states: Sequence[AssetState], *, remote_too: bool = False) -> None:
    """Refuse to go on without something that is missing.

    Args:
        states: of ``locate_assets``.
        remote_too: what would first have to be fetched counts as missing.

    Raises:
        AssetError: lists everything that is missing, at once.
    """
    wanted = (MISSING, REMOTE) if remote_too else (MISSING,)
    lines = [
        f"{state.asset.setting} = {state.asset.source}: {state.detail or 'not on this machine'}"
        for state in states
        if state.state in wanted
    ]
    if not lines:
        return
    listed = "\n".join(f"  - {line}" for line in lines)
    hint = "\n`voicehub prefetch PRESET` fetches what a hub has." if remote_too else ""
    raise AssetError(f"What the configuration names is missing:\n{listed}{hint}")

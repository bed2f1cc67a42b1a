"""Plants distributions on a temporary ``sys.path`` entry, as an installer would."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from voicehub.plugins import discovery, hooks, loading

Plant = Callable[..., None]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """Return ``plant(name, entries, *, version, api, modules, metadata)``.

    ``entries`` maps a group to ``{name: value}``; ``modules`` maps a module name to its source.
    """
    site = tmp_path / "site"
    site.mkdir()
    for variable in (
        discovery.DISABLE_VARIABLE,
        discovery.NO_AUTOLOAD_VARIABLE,
        discovery.ENABLE_VARIABLE,
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.syspath_prepend(str(site))
    before = set(sys.modules)

    def put(
        name: str,
        entries: Mapping[str, Mapping[str, str]],
        *,
        version: str = "1.0",
        api: str | None = "v1",
        modules: Mapping[str, str] | None = None,
        entry_text: str | None = None,
    ) -> None:
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nA planted plugin.\n"
        )
        groups = dict(entries)
        if api is not None:
            groups["voicehub.plugin_api"] = {api: name.replace("-", "_")}
        text = "".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in items.items()) + "\n"
            for group, items in groups.items()
        )
        (folder / "entry_points.txt").write_text(entry_text if entry_text is not None else text)
        for module, source in (modules or {}).items():
            (site / f"{module}.py").write_text(textwrap.dedent(source))
        loading.refresh()

    _forget()
    yield put
    monkeypatch.undo()
    for module in set(sys.modules) - before:
        if (getattr(sys.modules[module], "__file__", None) or "").startswith(str(site)):
            del sys.modules[module]
    _forget()


def _forget() -> None:
    loading.refresh()
    hooks.refresh()

"""Which distributions one package needs of this repository, for environments with it alone.

Run inside such an environment, it checks what is installed there:
``python tools/package_matrix.py voicehub-data``.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata, util
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CORE = "voicehub-core"
PYTHONS = ("3.11", "3.12")
ABSENT_FROM_CORE = ("transformers", "peft", "speechbrain", "soundfile")


def distributions(root: Path = ROOT) -> dict[str, Path]:
    """Folders of all distributions by name, the core first."""
    places = [*root.glob("packages/*/pyproject.toml"), *root.glob("plugins/*/pyproject.toml")]
    found = [path.parent for path in places]
    return {path.name: path for path in sorted(found, key=lambda path: (path.name != CORE, path))}


def closure(name: str, root: Path = ROOT) -> list[Path]:
    """Folders of a distribution and of what it requires of this repository, the core first."""
    ours = distributions(root)
    needed: set[str] = set()
    pending = [CORE, name]
    while pending:
        current = pending.pop()
        if current in needed:
            continue
        needed.add(current)
        pending += [other for other in _required(ours[current]) if other in ours]
    return [path for other, path in ours.items() if other in needed]


def _required(package: Path) -> list[str]:
    settings = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = (re.split(r"[ ;<>=!~\[]", line, maxsplit=1)[0] for line in settings["dependencies"])
    return [name.lower().replace("_", "-") for name in names]


def strangers(name: str) -> list[str]:
    """What is installed here and must not be: other packages of ours, model libraries."""
    expected = {path.name for path in closure(name)}
    installed = {item.metadata["Name"] for item in metadata.distributions()}
    others = [other for other in installed & set(distributions()) if other not in expected]
    if name == CORE:
        others += [library for library in ABSENT_FROM_CORE if util.find_spec(library) is not None]
    return sorted(others)


if __name__ == "__main__":
    found = strangers(sys.argv[1])
    sys.exit(f"not alone: {', '.join(found)} are installed too" if found else 0)

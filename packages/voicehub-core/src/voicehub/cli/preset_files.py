"""Where presets are: YAML files at the top of the ``voicehub.presets`` packages, and ./configs.

The package folder is located, not imported: only its parent package runs, and only for the family
that is named (or for all when presets are listed).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from voicehub.cli.output import UsageError
from voicehub.errors import ConfigurationError, PluginError
from voicehub.plugins.groups import PRESETS
from voicehub.suggest import did_you_mean, nearest

USER_DIRECTORY = "configs"
HOW_TO_LIST = "`voicehub presets` lists what there is."

# Folders of ./configs that hold parts of a configuration. A file in them is never a preset.
GROUP_FOLDERS = frozenset({"data", "model", "experiments", "hydra"})
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class Preset:
    """One preset: ``config`` is its path below ``root``, without the ending ``.yaml``."""

    name: str
    root: Path
    config: str
    family: str | None

    @property
    def path(self) -> Path:
        """The YAML file."""
        return self.root / f"{self.config}.yaml"

    @property
    def is_users(self) -> bool:
        """Whether it lies in the user's own ./configs."""
        return self.family is None

    def summary(self) -> str:
        """The first sentence of the comment that the file begins with, or nothing."""
        words: list[str] = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                if words or line.strip():
                    break
            elif "@package" not in line:
                words += line.lstrip("#").split()
        text = " ".join(words)
        end = _SENTENCE_END.search(text)
        return text[: end.end()] if end is not None else text


def families() -> tuple[str, ...]:
    """Families that ship presets, from metadata alone."""
    from voicehub.plugins.discovery import names

    return names(PRESETS)


def family_root(family: str) -> Path:
    """The folder with the presets of ``family``.

    Raises:
        PluginError: the entry is claimed twice, or its package cannot be found or read.
    """
    from voicehub.plugins.discovery import PluginState, entry_points

    entry, *_ = (
        entry
        for entry in entry_points(PRESETS)
        if entry.name == family and entry.state is not PluginState.DISABLED
    )
    what = f"Presets of '{family}' ({entry.distribution} {entry.version})"
    if entry.state is not PluginState.AVAILABLE:
        raise PluginError(f"{what} cannot be used: {entry.reason}")
    try:
        found = importlib.util.find_spec(entry.value)  # imports the parent package only
    except (Exception, SystemExit) as error:  # a plugin may do anything while it is imported
        raise PluginError(
            f"{what}: package '{entry.value}' does not import ({type(error).__name__}: {error})."
        ) from error
    if found is None or not found.submodule_search_locations:
        raise PluginError(f"{what}: there is no package '{entry.value}'.")
    return Path(next(iter(found.submodule_search_locations))).resolve()


def family_presets(family: str) -> tuple[Preset, ...]:
    """The presets of one family, by name. Names with a leading underscore are for inheriting."""
    root = family_root(family)
    files = sorted(path for path in root.glob("*.yaml") if not path.stem.startswith("_"))
    return tuple(Preset(f"{family}/{path.stem}", root, path.stem, family) for path in files)


def user_presets(cwd: Path) -> tuple[Preset, ...]:
    """The user's own presets: every YAML file of ./configs outside its config groups."""
    root = (cwd / USER_DIRECTORY).resolve()
    return tuple(_user_presets(root)) if root.is_dir() else ()


def _user_presets(root: Path) -> Iterator[Preset]:
    for path in sorted(root.rglob("*.yaml")):
        config = path.relative_to(root).with_suffix("").as_posix()
        parts = config.split("/")
        if parts[0] in GROUP_FOLDERS or parts[-1].startswith("_"):
            continue
        yield Preset(config, root, config, None)


def find_preset(name: str, cwd: Path) -> Preset:
    """The preset called ``name``; a path that ends in ``.yaml`` names that very file.

    Raises:
        UsageError: there is none; the message names the nearest and how to list them.
        ConfigurationError: both a package and ./configs have one of that name.
    """
    if name.endswith(".yaml") and (cwd / name).is_file():
        file = (cwd / name).resolve()
        return Preset(name, file.parent, file.stem, None)
    wanted = name.removesuffix(".yaml").strip("/")
    own = {preset.name: preset for preset in user_presets(cwd)}
    family = wanted.split("/", 1)[0]
    shipped = {}
    if family in families():
        shipped = {preset.name: preset for preset in family_presets(family)}
    if wanted in own and wanted in shipped:
        raise ConfigurationError(
            f"Preset '{wanted}' is both {own[wanted].path} and {shipped[wanted].path}. "
            "Rename yours, so that it is clear which one runs."
        )
    found = own.get(wanted) or shipped.get(wanted)
    if found is None:
        raise UsageError(_no_such_preset(wanted, family, [*own, *shipped]))
    return found


def _no_such_preset(wanted: str, family: str, names: list[str]) -> str:
    known = families()
    if "/" not in wanted and (meant := _with_that_name(wanted)):
        return f"There is no preset '{wanted}'; a name begins with its family: {', '.join(meant)}."
    if family not in known:
        # The family itself may be misspelt: then compare names as family/preset of the nearest.
        near = nearest(family, known)
        if near is not None:
            try:
                names += [preset.name for preset in family_presets(near)]
            except PluginError:
                names.append(near)
    guess = did_you_mean(wanted, names)
    have = f"families with presets: {', '.join(known) or 'none installed'}"
    return f"There is no preset '{wanted}'.{guess} {HOW_TO_LIST} ({have})"


def _with_that_name(name: str) -> list[str]:
    """Full names of the presets that are called ``name`` in their family."""
    found: list[str] = []
    for family in families():
        with suppress(PluginError):  # a broken family must not hide the others
            found += [preset.name for preset in family_presets(family) if preset.config == name]
    return found

"""``voicehub new-plugin``: a complete package of a new family, to be changed into one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption, require_folder
from voicehub.cli.output import UsageError, finish

TEMPLATE = Path(__file__).with_name("plugin_template")
_ENDING = ".tmpl"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_OPEN = re.compile(r"@(family|package|distribution|license|core|next)@")


def new_plugin(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the family: lower case, as in my-codec.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory to write; ./NAME by default.")
    ] = None,
    license_: Annotated[
        str, typer.Option("--license", help="SPDX name for the metadata, e.g. MIT.")
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Write a package of a new family: it installs, passes its tests and trains at once."""
    directory = output or Path(name)
    files = write_plugin(name, directory, license_=license_)
    lines = [f"wrote {len(files)} files in {directory}", "", "Next:"]
    # With a slash in front: without one, pip would look for a project of that name on its index.
    place = directory if directory.is_absolute() else f"./{directory.as_posix()}"
    lines += [
        f"  pip install -e '{place}[test]'",
        f"  voicehub train {name}/tiny",
        f"  pytest {directory}",
    ]
    result = {"directory": directory, "distribution": distribution_of(name), "files": files}
    finish(result, json_mode=json_, human="\n".join(lines))


def write_plugin(name: str, directory: Path, *, license_: str = "") -> list[str]:
    """Write the package of family ``name`` and return its files, relative to ``directory``.

    Raises:
        UsageError: the name is no plain lower-case one or is taken, or the directory holds
            something or cannot be written.
    """
    _check(name, directory)
    require_folder("--output", directory)
    words = _words(name, license_)
    written = []
    for source in sorted(TEMPLATE.rglob(f"*{_ENDING}")):
        relative = source.relative_to(TEMPLATE).as_posix().removesuffix(_ENDING)
        target = directory / _filled(relative, words)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(source.read_text(encoding="utf-8"), words), encoding="utf-8")
        written.append(target.relative_to(directory).as_posix())
    return written


def distribution_of(name: str) -> str:
    """Return the name that the package of a family has on an index."""
    return f"voicehub-{name}"


def _words(name: str, license_: str) -> dict[str, str]:
    from importlib_metadata import version

    core = version("voicehub-core")
    major, minor = core.split(".")[:2]
    return {
        "family": name,
        "package": distribution_of(name).replace("-", "_"),
        "distribution": distribution_of(name),
        "license": f'license = "{license_}"\n' if license_ else "",
        "core": f"{major}.{minor}",
        # Before 1.0 every minor version may break what it builds on.
        "next": f"0.{int(minor) + 1}" if major == "0" else f"{int(major) + 1}",
    }


def _filled(text: str, words: dict[str, str]) -> str:
    return _OPEN.sub(lambda match: words[match[1]], text)


def _check(name: str, directory: Path) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a family; expected lower-case letters and digits, parts "
            "joined by '-', as in my-codec."
        )
    from voicehub.plugins.discovery import canonical, entry_points

    for entry in entry_points():
        if canonical(entry.distribution) == distribution_of(name):
            raise UsageError(
                f"{entry.distribution} {entry.version} is installed: choose another name."
            )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not empty. Give another with --output.")

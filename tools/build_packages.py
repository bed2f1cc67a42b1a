"""Build every package into ``dist/`` and check what a user would download.

Run by ``nox -s build``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_GPL = ("espeakng-loader", "phonemizer", "piper-phonemize", "py-espeak-ng")


def check_wheel(wheel: Path) -> list[str]:
    """What is wrong with a wheel, in words; an empty list when nothing is."""
    problems = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(info).decode("utf-8"))
    if not any(name.endswith("LICENSE") for name in names):
        problems.append("holds no LICENSE")
    if not any(name.endswith("/py.typed") for name in names):
        problems.append("holds no py.typed")
    strangers = {name.split("/")[0] for name in names if "dist-info" not in name}
    if len(strangers) != 1 or not next(iter(strangers)).startswith("voicehub"):
        problems.append(f"installs {sorted(strangers)} instead of one package")
    for line in fields.get_all("Requires-Dist") or []:
        name = re.split(r"[ ;<>=!~\[]", line, maxsplit=1)[0].lower()
        if name in _GPL and "extra ==" not in line:
            problems.append(f"requires the GPL package {name}")
    if fields["License-Expression"] != "Apache-2.0":
        problems.append(f"states the licence {fields['License-Expression']!r}")
    return problems


def check_data_files(wheel: Path, package: Path) -> list[str]:
    """Every file of the source package is in the wheel: presets and templates too."""
    source = package / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = sorted(wanted - set(archive.namelist()))
    return [f"lacks {', '.join(missing[:5])}"] if missing else []


def check_source(archive: Path) -> list[str]:
    """What is wrong with a source distribution."""
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    needed = ("LICENSE", "README.md", "pyproject.toml")
    return [f"holds no {name}" for name in needed if not any(n.endswith(name) for n in names)]


def build(package: Path, out: Path) -> list[str]:
    """Build one package; returns its problems."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(package)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    stem = package.name.replace("-", "_")
    (wheel,) = out.glob(f"{stem}-*.whl")
    (source,) = out.glob(f"{stem}-*.tar.gz")
    problems = [*check_wheel(wheel), *check_data_files(wheel, package), *check_source(source)]
    print(f"{wheel.name}: {'; '.join(problems) or 'good'}", flush=True)
    return problems


def main() -> int:
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    places = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    packages = sorted(path.parent for path in places)
    return 1 if sum(len(build(package, out)) for package in packages) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The checks of `nox -s build`, on wheels made for the purpose."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from build_packages import check_data_files, check_wheel

METADATA = """Metadata-Version: 2.4
Name: voicehub-toy
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: voicehub-core==0.1.0
Requires-Dist: espeakng-loader>=0.2; extra == "synth"
"""

GOOD = {
    "voicehub_toy/__init__.py": "",
    "voicehub_toy/py.typed": "",
    "voicehub_toy-0.1.0.dist-info/METADATA": METADATA,
    "voicehub_toy-0.1.0.dist-info/licenses/LICENSE": "Apache",
}


def wheel_of(directory: Path, files: dict[str, str]) -> Path:
    path = directory / "voicehub_toy-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_good_wheel_has_no_problems(tmp_path: Path) -> None:
    assert check_wheel(wheel_of(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"voicehub_toy-0.1.0.dist-info/licenses/LICENSE": None}, "holds no LICENSE"),
        ({"voicehub_toy/py.typed": None}, "holds no py.typed"),
        ({"tests/test_a.py": ""}, "instead of one package"),
        (
            {"voicehub_toy-0.1.0.dist-info/METADATA": METADATA.replace('; extra == "synth"', "")},
            "requires the GPL package espeakng-loader",
        ),
        (
            {"voicehub_toy-0.1.0.dist-info/METADATA": METADATA.replace("Apache-2.0", "MIT")},
            "states the licence 'MIT'",
        ),
    ],
)
def test_each_problem_is_named(tmp_path: Path, change: dict[str, str | None], problem: str) -> None:
    files = {name: text for name, text in {**GOOD, **change}.items() if text is not None}
    (found,) = check_wheel(wheel_of(tmp_path, files))
    assert problem in found


def test_a_preset_left_out_is_noticed(tmp_path: Path) -> None:
    presets = tmp_path / "package" / "src" / "voicehub_toy" / "presets"
    presets.mkdir(parents=True)
    (presets / "tiny.yaml").write_text("family: toy")
    wheel = wheel_of(tmp_path, GOOD)
    assert check_data_files(wheel, tmp_path / "package") == ["lacks voicehub_toy/presets/tiny.yaml"]

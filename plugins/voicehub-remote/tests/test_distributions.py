"""Which packages of here go to a host, and how they are laid out for it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from voicehub_remote import distributions
from voicehub_remote.distributions import installed, stage
from voicehub_remote.environment_request import EnvironmentRequest
from voicehub_remote.errors import RemoteError
from voicehub_remote.installation import digest_of, requirements_of


def plant(site: Path, name: str, *lines: str, editable: bool = False, pth: str = "") -> None:
    """A distribution as an installer leaves it."""
    stem = name.replace("-", "_")
    folder = site / f"{stem}-1.0.dist-info"
    folder.mkdir(parents=True)
    head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]
    (folder / "METADATA").write_text("\n".join(head) + "\n")
    files = [f"{folder.name}/METADATA,,"]
    if editable:
        (folder / "direct_url.json").write_text('{"url": "x", "dir_info": {"editable": true}}')
        (site / f"{stem}.pth").write_text(pth + "\n")
        files.append(f"{stem}.pth,,")
    (folder / "RECORD").write_text("\n".join(files) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    whole = metadata.distributions
    monkeypatch.setattr(metadata, "distributions", lambda: whole(path=[str(folder)]))
    return folder


def test_all_of_ours_but_this_plugin_are_found() -> None:
    found = {one.name: one for one in installed()}
    assert "voicehub-core" in found and distributions.OWN not in found
    assert not [line for one in found.values() for line in one.requires if "voicehub" in line]
    assert not [line for one in found.values() for line in one.requires if "extra ==" in line]


def test_released_packages_are_named_and_checkouts_staged(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "checkout" / "src"
    for name in ("toy", "tests"):
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").write_text("here = True\n")
    (source / "notes.txt").write_text("")
    needs = ["Requires-Dist: numpy>=1", "Requires-Dist: voicehub-core==1.0"]
    needs.append('Requires-Dist: triton; extra == "fast"')
    plant(site, "voicehub-toy", *needs, editable=True, pth=str(source))
    plant(site, "voicehub-core", "Requires-Dist: typer")
    plant(site, "numpy")
    core, toy = installed()
    assert (core.is_checkout, toy.is_checkout, toy.requires) == (False, True, ("numpy>=1",))
    assert requirements_of([core, toy], EnvironmentRequest()) == ["voicehub-core==1.0", "numpy>=1"]
    bare = EnvironmentRequest(with_dependencies=False)
    assert requirements_of([core, toy], bare) == ["voicehub-core==1.0"]
    staged = tmp_path / "staged"
    staged.mkdir()
    stage([core, toy], staged)
    names = {path.name for path in staged.iterdir()}
    assert names == {"toy", "voicehub_toy-1.0.dist-info"}
    assert [path.name for path in (staged / "voicehub_toy-1.0.dist-info").iterdir()] == ["METADATA"]
    script = "import toy; from importlib.metadata import version as v; print(v('voicehub-toy'))"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script], cwd=staged, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1.0\n"


def test_a_plugin_of_another_name_is_ours_by_its_entry_points(site: Path) -> None:
    plant(site, "hush")
    assert installed() == []
    (site / "hush-1.0.dist-info" / "entry_points.txt").write_text(
        "[voicehub.plugin_api]\nv1=hush\n"
    )
    assert [one.name for one in installed()] == ["hush"]


def test_a_checkout_that_does_not_tell_where_it_lies(site: Path) -> None:
    plant(site, "voicehub-toy", editable=True, pth="import __editable___finder")
    with pytest.raises(RemoteError, match="voicehub-toy is installed here from a checkout"):
        installed()


def test_pip_runs_again_where_something_changed(tmp_path: Path) -> None:
    requirements = tmp_path / "r.txt"
    requirements.write_text("a")
    request = EnvironmentRequest(requirements=requirements)
    first = digest_of(["x"], ["torch==2"], request)
    assert digest_of(["x"], ["torch==2"], request) == first
    others = [digest_of(["y"], ["torch==2"], request), digest_of(["x"], ["torch==3"], request)]
    others.append(digest_of(["x"], ["torch==2"], EnvironmentRequest(with_dependencies=False)))
    requirements.write_text("b")
    others.append(digest_of(["x"], ["torch==2"], request))
    assert first not in others and len(set(others)) == 4

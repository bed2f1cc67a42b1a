"""The project, its data and the environment, brought to a real sshd."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from loopback_sshd import Host
from voicehub_remote import deployment, environment
from voicehub_remote.distributions import Installed, installed
from voicehub_remote.places import Places
from voicehub_remote.project import DataItem
from voicehub_remote.project_files import check_files, visible_files
from voicehub_remote.session import RunState
from voicehub_remote.ssh import Remote

from voicehub.cli.app import run
from voicehub.cli.output import UsageError


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package from a checkout, which is to go there beside the core; returns its module."""
    folder = tmp_path_factory.mktemp("toy")
    info = folder / "voicehub_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: voicehub-toy\nVersion: 1.0\n")
    module = folder / "src" / "voicehub_toy" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("here = True\n")
    one = Installed("voicehub-toy", "1.0", (folder / "src",), (), info)
    chosen = [*(found for found in installed() if found.name == "voicehub-core"), one]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "installed", lambda: chosen)
        yield module


@pytest.fixture(scope="module")
def deployed(
    toy: Path, sshd: Host, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A project that was deployed once, with its environment; and what the command told."""
    project = tmp_path_factory.mktemp("work") / "my project"
    (project / "src").mkdir(parents=True)
    for name, text in {"a.py": "1\n", "src/b ö.py": "2\n", ".gitignore": "data/\nruns/\n"}.items():
        (project / name).write_text(text)
    (project / "data").mkdir()
    (project / "data" / "train.jsonl").write_text("{}\n")
    (project / "data" / "left.jsonl").write_text("{}\n")
    git(project, "init", "-q")
    git(project, "add", "a.py")  # the other is seen as well
    wheel = tiny_wheel(sshd.folder)
    (project / "requirements.txt").write_text("-r more.txt\n")
    (project / "more.txt").write_text(f"{wheel}\n")
    words = ["--python", sshd.python, "--cpu", "--data", str(project / "data" / "train.jsonl")]
    return project, told(sshd, project, *words)


def tiny_wheel(folder: Path) -> Path:
    """A package that the image does not have, as a wheel."""
    path = folder / "further-1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: further\nVersion: 1.0\nRequires-Dist: torch>=2\n"
    wheel = "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("further.py", "here = True\n")
        archive.writestr("further-1.0.dist-info/METADATA", metadata)
        archive.writestr("further-1.0.dist-info/WHEEL", wheel)
        archive.writestr("further-1.0.dist-info/RECORD", "")
    path.chmod(0o644)
    return path


def git(project: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(project), *words], check=True, capture_output=True)


def told(sshd: Host, project: Path, *words: str, code: int = 0, root: str = "a place") -> Any:
    """Deploy, and return the last line of JSON."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command = ["remote", "deploy", *sshd.arguments, "--project", str(project), "--root", root]
        assert run([*command, *words, "--json"]) == code, out.getvalue()
    result = json.loads(out.getvalue().splitlines()[-1])
    return result["deploy"] if code == 0 else result["error"]["message"]


def there(sshd: Host, root: str = "a place") -> set[str]:
    """Files of the project on the host."""
    folder = sshd.home / root / "project"
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def on_host(sshd: Host, program: str) -> str:

    with Remote(sshd.target()) as remote:
        return remote.run(f"'a place/env/bin/python' -c '{program}'", what="ask").out.strip()


def test_what_git_sees_and_what_is_named_goes_there(
    sshd: Host, deployed: tuple[Path, dict[str, Any]]
) -> None:
    _, told = deployed
    assert there(sshd) >= {"a.py", "src/b ö.py", ".gitignore", "data/train.jsonl"}
    assert "data/left.jsonl" not in there(sshd)
    assert not any(name.startswith(".git/") for name in there(sshd))
    size = (sshd.home / "a place" / "project" / "more.txt").stat().st_size
    assert (told["files"], told["bytes"]) == (6, 31 + size)


def test_the_environment_has_the_images_torch_and_our_packages(
    sshd: Host, deployed: tuple[Path, dict[str, Any]]
) -> None:
    import torch

    found = on_host(
        sshd,
        "from importlib.util import find_spec; from importlib.metadata import version; "
        'print(version("torch"), find_spec("torch").origin, version("voicehub-toy"), '
        'find_spec("voicehub_toy").origin)',
    ).split(maxsplit=3)
    assert found[:2] == [version("torch"), torch.__file__]
    sources = sshd.home / "a place" / "sources" / "voicehub_toy" / "__init__.py"
    assert found[2:] == ["1.0", str(sources)] and sources.read_text() == "here = True\n"
    assert deployed[1]["environment"]["torch"] == torch.__version__


def test_requirements_of_the_project_are_installed_beside_the_image(
    sshd: Host, deployed: tuple[Path, dict[str, Any]]
) -> None:
    where = on_host(sshd, "import further; print(further.__file__)")
    assert where.startswith(str(sshd.home / "a place" / "env" / "lib"))
    assert deployed[1]["environment"]["installed"] is True


def test_commands_of_the_environment(sshd: Host, deployed: object) -> None:

    with Remote(sshd.target()) as remote:
        shown = remote.run("'a place/env/bin/voicehub' plugins", what="ask").out
    assert "voicehub-remote" in shown


def test_done_again_it_sends_what_changed(
    sshd: Host, toy: Path, deployed: tuple[Path, dict[str, Any]]
) -> None:
    project, _ = deployed
    toy.write_text("here = None\n")
    (sshd.home / "a place" / "project" / "made-there.txt").write_text("by the run")
    times = (project / "a.py").stat().st_atime_ns, (project / "a.py").stat().st_mtime_ns
    (project / "a.py").write_text("3\n")  # as long as before, and as old
    os.utime(project / "a.py", ns=times)
    (project / ".gitignore").touch()  # as git does
    (project / "new.py").write_text("new")
    (project / "src" / "b ö.py").unlink()
    words = ["--python", sshd.python, "--cpu"]
    result = told(sshd, project, *words)
    assert (result["files"], result["bytes"]) == (2, 5)
    assert result["environment"]["installed"] is False
    assert 1 <= result["environment"]["sources"] < 20  # the toy, and what is edited meanwhile
    assert (sshd.home / "a place" / "sources" / "voicehub_toy" / "__init__.py").stat().st_size == 12
    assert (sshd.home / "a place" / "project" / "a.py").read_text() == "3\n"
    kept = {
        "a.py",
        ".gitignore",
        "requirements.txt",
        "more.txt",
        "new.py",
        "made-there.txt",
        "data/train.jsonl",
    }
    assert there(sshd) == kept
    assert not (sshd.home / "a place" / "project" / "src").exists()
    assert told(sshd, project, "--skip-setup")["files"] == 0


def test_an_interrupted_deploy_forgets_nothing(
    sshd: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first brought before it broke off is removed when the project no longer has it."""
    from voicehub_remote.project import Upload

    project, places = tmp_path / "p", Places("interrupted")
    project.mkdir()
    git(project, "init", "-q")
    for name in ("one", "two"):
        (project / name).write_text(name)
    with Remote(sshd.target()) as remote:
        with monkeypatch.context() as patch, pytest.raises(ConnectionError):
            whole = Remote.push

            def breaks_off(self: Remote, *args: Any, **options: Any) -> None:
                whole(self, *args, **options)
                raise ConnectionError

            patch.setattr(Remote, "push", breaks_off)
            Upload(project).send(remote, places)
        (project / "one").unlink()
        Upload(project).send(remote, places)
    assert there(sshd, "interrupted") == {"two"}


def test_a_run_that_goes_on_is_named(
    sshd: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:

    states = [RunState("first", "ended", 0), RunState("second", "running")]
    monkeypatch.setattr(deployment, "all_states", lambda remote, places: states)
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a")
    told(sshd, tmp_path, "--skip-setup", code=1, root="going")  # it has no environment
    assert "note: second goes on there" in capfd.readouterr().err


def test_one_deploy_at_a_time(sshd: Host, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a")
    lock = sshd.home / "alone/deploying"
    with Remote(sshd.target()) as remote:
        remote.run("mkdir alone; echo 999999999 >alone/deploying", what="leave an old one")
        with deployment._alone(remote, Places("alone")):
            assert lock.read_text() != "999999999\n"
            said = told(sshd, tmp_path, "--skip-setup", code=1, root="alone")
            assert "another deploy writes below alone now" in said
            assert not (sshd.home / "alone/project").exists()
        assert not lock.exists()
    said = told(sshd, tmp_path, "--skip-setup", code=1, root="alone")
    assert "no environment in alone/env" in said
    assert not lock.exists()


def test_data_that_lies_elsewhere(sshd: Host, tmp_path: Path) -> None:
    from voicehub_remote.project import DataItem, Upload

    project, corpus = tmp_path / "p", tmp_path / "corpus"
    project.mkdir()
    corpus.mkdir()
    git(project, "init", "-q")
    (project / "a").write_text("a")
    (tmp_path / "clip.wav").write_bytes(b"wave")
    (corpus / "clip.wav").symlink_to(tmp_path / "clip.wav")
    items = tuple(
        DataItem.parse(text, project)
        for text in (str(corpus), f"{corpus}=data/x y", f"{corpus}={sshd.home}/far")
    )
    with Remote(sshd.target()) as remote:
        sent = Upload(project, items).send(remote, Places("elsewhere"))
        assert sent.files == 4
        (tmp_path / "clip.wav").write_bytes(b"WAVE")
        clip = sshd.home / "far" / "clip.wav"
        times = clip.stat().st_atime_ns, clip.stat().st_mtime_ns
        os.utime(tmp_path / "clip.wav", ns=times)  # size and time say that nothing changed
        assert Upload(project, items).send(remote, Places("elsewhere")).files == 0
        assert Upload(project, items, checksum=True).send(remote, Places("elsewhere")).files == 3
    assert there(sshd, "elsewhere") == {"a", "corpus/clip.wav", "data/x y/clip.wav"}
    assert clip.read_bytes() == b"WAVE" and not clip.is_symlink()


def test_what_looks_like_a_secret_stays_here(sshd: Host, tmp_path: Path) -> None:
    project = tmp_path / "p"
    (project / "data").mkdir(parents=True)
    git(project, "init", "-q")
    (project / ".env").write_text("TOKEN=x")
    (project / ".env.example").write_text("TOKEN=")
    said = told(sshd, project, "--skip-setup", code=2, root="secret")
    assert ".env" in said and ".env.example" not in said and "--allow-file" in said
    assert not (sshd.home / "secret").exists()
    (project / ".gitignore").write_text(".env\n")
    (project / "data" / "id_rsa").write_text("key")
    (project / "link").symlink_to(project.parent / "server.pem")
    assert "server.pem, which is not there" in told(
        sshd, project, "--skip-setup", code=2, root="secret"
    )
    (project.parent / "server.pem").write_text("key")
    (project / ".gitignore").write_text(".env\ndata\n")
    assert "server.pem" in told(sshd, project, "--skip-setup", code=2, root="secret")
    (project / "link").unlink()
    data = ["--data", str(project / "data")]
    assert "id_rsa" in told(sshd, project, "--skip-setup", *data, code=2, root="secret")
    said = told(
        sshd, project, "--skip-setup", *data, "--allow-file", "id_rsa", code=1, root="secret"
    )
    assert "Leave out --skip-setup once" in said


def test_submodules_go_along(tmp_path: Path) -> None:
    project, inner = tmp_path / "p", tmp_path / "p" / "inner"
    inner.mkdir(parents=True)
    git(project, "init", "-q")
    git(inner, "init", "-q")
    (project / "a").write_text("a")
    (inner / "b").write_text("b")
    (inner / "c.log").write_text("c")
    (inner / ".gitignore").write_text("*.log")
    assert visible_files(project) == ["a", "inner/.gitignore", "inner/b"]


def test_links_that_cannot_be_sent_are_told(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    home = tmp_path / "home"
    (home / "inside").mkdir(parents=True)
    git(home, "init", "-q")
    (home / "inside/file").touch()
    for name, to in {"in": "inside", "inside/out": "../../outside", "abs": home / "inside"}.items():
        (home / name).symlink_to(to)
    notes: list[str] = []
    assert visible_files(home, notes.append) == ["in", "inside/file"]
    assert len(notes) == 2 and all("--data" in note for note in notes)
    (home / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="loop is a link to loop, which is not there"):
        check_files(home, visible_files(home), ())


def test_data_that_leads_in_a_circle_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "clips").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (corpus / "clips/more").symlink_to("../../elsewhere")
    item = DataItem.parse(str(corpus), tmp_path)
    item.check(())
    (corpus / "clips/up").symlink_to("..")
    with pytest.raises(UsageError, match=r"clips/up is a link to \.\., a folder that it lies in"):
        item.check(())


def test_a_folder_that_git_does_not_know(sshd: Host, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    assert "git init" in told(sshd, tmp_path, "--skip-setup", code=2)
    assert "no such folder" in told(sshd, tmp_path / "b", "--skip-setup", code=2)


def test_hosts_that_lack_something(sshd: Host, deployed: tuple[Path, dict[str, Any]]) -> None:
    from dataclasses import replace

    project, _ = deployed
    bare = replace(sshd, port=sshd.bare_port)
    assert "tmux is not installed there" in told(bare, project, "--skip-setup", code=1)


def test_a_torch_that_was_replaced_is_noticed(
    sshd: Host, deployed: tuple[Path, dict[str, Any]]
) -> None:
    (site,) = (sshd.home / "a place" / "env" / "lib").glob("python*/site-packages")
    (site / "torch.py").write_text("__version__ = '9'\nclass version: cuda = None\n")
    try:
        said = told(sshd, deployed[0], "--python", sshd.python, "--cpu", code=1)
    finally:
        (site / "torch.py").unlink()
    assert f"torch is 9 at {site.resolve()}/torch.py" in said and "replaced it" in said


def test_a_requirement_that_would_replace_torch_is_refused_by_pip(
    sshd: Host, deployed: tuple[Path, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    project, _ = deployed
    other = project / "data" / "other.txt"
    other.write_text("torch==1.0\n")
    words = ["--python", sshd.python, "--cpu", "--requirements", str(other)]
    said = told(sshd, project, *words, code=1)
    assert "pip ended with exit code 1" in said
    assert "torch==1.0" in capfd.readouterr().err


def test_a_full_disk(sshd: Host, full_disk: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "big").write_bytes(bytes(range(256)) * 1024)
    root = f"{full_disk}/root"
    said = told(sshd, tmp_path, "--skip-setup", code=1, root=root)
    assert f"could not send the project: the disk is full at {root}" in said


def test_a_dry_run_prints_all_and_touches_nothing(sshd: Host, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a")
    (tmp_path / "requirements.txt").write_text("tomli\n")
    commands = told(sshd, tmp_path, "--dry-run", "--data", f"{tmp_path}=x", root="dry")["commands"]
    assert not (sshd.home / "dry").exists()
    text = "\n".join(commands)
    for part in ("mkdir -p dry/project", "git -C", "rsync", "-m venv", "pip install", "probe"):
        assert part in text, part
    for command in commands:
        assert "\n" not in command
        subprocess.run(["bash", "-n", "-c", command], check=True)

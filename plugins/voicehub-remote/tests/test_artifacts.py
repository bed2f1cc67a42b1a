"""Files of a run come whole, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from local_host import LocalHost
from voicehub_remote.artifacts import DifferingFilesError, DigestError, Fetched, fetch_folder
from voicehub_remote.errors import RemoteError
from voicehub_remote.rsync import Sent, Transfer


class CopyingHost(LocalHost):
    """Copies where rsync would; ``spoil`` is put behind the files that come."""

    target = "somewhere"
    spoil = b""

    def pull(self, source: str, destination: Path, transfer: Transfer, **_: Any) -> Sent:
        for name in transfer.files or ():
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            data = (self.home / source / name).read_bytes()
            (destination / name).write_bytes(data[: -len(self.spoil) or None] + self.spoil)
        return Sent(len(transfer.files or ()), 0)


@pytest.fixture
def host(tmp_path: Path) -> CopyingHost:
    (tmp_path / "home").mkdir()
    host = CopyingHost(tmp_path / "home")
    (host.path / "project/out/sub").mkdir(parents=True)
    (host.path / "project/out/log").write_text("one\ntwo\n")
    (host.path / "project/out/sub/weights").write_bytes(b"weights")
    return host


def fetch(host: CopyingHost, to: Path, **options: Any) -> Fetched:
    folder = f"{host.places.root}/project/out"
    return fetch_folder(host, host.places, folder, to, **options)  # type: ignore[arg-type]


def test_what_comes_otherwise_than_told_is_not_kept(host: CopyingHost, tmp_path: Path) -> None:
    host.spoil = b"?"
    with pytest.raises(DigestError, match="sub/weights"):
        fetch(host, tmp_path / "here")
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]


def test_a_log_that_grows_meanwhile_is_whole_as_far_as_it_was_told(
    host: CopyingHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = host.pull

    def later(source: str, *rest: Any, **more: Any) -> Sent:
        with (host.path / "project/out/log").open("a") as stream:
            stream.write("three\n")
        return pull(source, *rest, **more)

    monkeypatch.setattr(host, "pull", later)
    assert len(fetch(host, tmp_path / "here").files) == 2
    assert (tmp_path / "here/log").read_text() == "one\ntwo\nthree\n"


def test_files_here_that_differ_stay_as_they_are(host: CopyingHost, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "log").write_text("one\n")
    (here / "sub/weights").write_bytes(b"my own")
    with pytest.raises(DifferingFilesError, match=r"sub/weights: here with other contents"):
        fetch(host, here)
    assert ((here / "log").read_text(), (here / "sub/weights").read_bytes()) == ("one\n", b"my own")
    assert fetch(host, here, patterns=["log"]).files == [here / "log"]
    assert (here / "log").read_text() == "one\ntwo\n"
    assert (fetch(host, here, force=True).files, fetch(host, here).same) == (
        [here / "sub/weights"], 2,
    )  # fmt: skip


def test_nothing_that_fits_is_an_error(host: CopyingHost, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"holds no file that matches \*\.wav"):
        fetch(host, tmp_path / "here", patterns=["*.wav"])
    shutil.rmtree(host.path / "project/out")
    with pytest.raises(RemoteError, match="is not there"):
        fetch(host, tmp_path / "here")


def test_a_host_that_names_files_outside_is_not_believed(
    host: CopyingHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"exists": True, "files": [{"path": "../x", "size": 1, "sha256": "0"}]}
    monkeypatch.setattr("voicehub_remote.artifacts.run_program", lambda *_, **__: told)
    with pytest.raises(RemoteError, match="outside of"):
        fetch(host, tmp_path / "here")

"""Programs that are sent to the host, called here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from voicehub_remote.on_host import artifacts, newest


def listed(capsys: pytest.CaptureFixture[str], folder: Path, **request: Any) -> dict[str, Any]:
    artifacts.main({"folder": str(folder), "patterns": [], "known": {}, **request})
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_all_but_checkpoints_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("final/a", "b", "1-x/c", "1-x/checkpoint-3/d", "checkpoint-7/e",
                 ".checkpoint-9.incomplete-0123456789abcdef/f", "checkpoint-best/g"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = [item["path"] for item in listed(capsys, tmp_path)["files"]]
    assert found == ["1-x/c", "b", "checkpoint-best/g", "final/a"]
    chosen = listed(capsys, tmp_path, patterns=["checkpoint-7/*", "?"])["files"]
    assert [item["path"] for item in chosen] == ["b", "checkpoint-7/e"]
    assert listed(capsys, tmp_path / "nowhere") == {"exists": False, "files": []}


def test_the_digest_of_what_is_known_goes_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import hashlib

    (tmp_path / "log").write_bytes(b"abcdef")
    (item,) = listed(capsys, tmp_path, known={"log": 4})["files"]
    assert item == {
        "path": "log",
        "size": 6,
        "sha256": hashlib.sha256(b"abcdef").hexdigest(),
        "first": hashlib.sha256(b"abcd").hexdigest(),
    }
    (item,) = listed(capsys, tmp_path, known={"log": 7})["files"]
    assert item["first"] is None


def test_checkpoints_of_later_stages_are_newer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("1-warm/checkpoint-90", "2-main/checkpoint-9", "2-main/checkpoint-10"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".complete").touch()
    (tmp_path / "2-main/checkpoint-11").mkdir()  # not complete
    newest.main({"folder": str(tmp_path)})
    told = json.loads(capsys.readouterr().out)
    assert told["checkpoint"] is None  # none of them has a manifest
    names = [item["checkpoint"] for item in told["damaged"]]
    assert names == ["2-main/checkpoint-10", "2-main/checkpoint-9", "1-warm/checkpoint-90"]

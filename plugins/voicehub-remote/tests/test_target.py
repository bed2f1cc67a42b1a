"""Which host is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from voicehub_remote.target import Target

from voicehub.cli.output import UsageError


@pytest.mark.parametrize(
    ("text", "user", "host", "port"),
    [
        ("gpu", None, "gpu", None),
        ("me@gpu.example:2222", "me", "gpu.example", 2222),
        ("[::1]:22", None, "::1", 22),
        ("me@[fe80::1%eth0]", "me", "fe80::1%eth0", None),
        ("fe80::1", None, "fe80::1", None),
        ("ssh://root@1.2.3.4:9/", "root", "1.2.3.4", 9),
    ],
)
def test_targets(text: str, user: str | None, host: str, port: int | None) -> None:
    target = Target.parse(text)
    assert (target.user, target.host, target.port) == (user, host, port)
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    ["", "@gpu", "gpu:", "gpu:0", "gpu:70000", "gpu:x", "[::1", "[::1]x", "-oProxyCommand=x", "a b",
     "me@-x", "a;b", "$(x)"],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError):
        Target.parse(text)


def test_options_of_the_user_come_first(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("")
    target = Target.parse("gpu:7", identity=key, options=("ConnectTimeout=3",))
    words = target.ssh("-t")
    assert words[:4] == ["ssh", "-t", "-o", "ConnectTimeout=3"]
    assert words[-6:] == ["-p", "7", "-i", str(key), "-o", "IdentitiesOnly=yes"]
    assert "StrictHostKeyChecking=yes" in words
    with pytest.raises(UsageError, match="no such file"):
        Target.parse("gpu", identity=tmp_path / "other")
    with pytest.raises(UsageError, match="NAME=VALUE"):
        Target.parse("gpu", options=("-v",))


def test_paths_of_rsync() -> None:
    assert Target.parse("me@[::1]:22").rsync_path("a b/") == "me@[::1]:a b/"
    assert Target.parse("gpu").rsync_path("/x") == "gpu:/x"

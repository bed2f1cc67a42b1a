"""A forked command is the console script: same output, exit code, directory and environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_server import CommandServer, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.fixture(scope="module")
def server() -> CommandServer:
    found = CommandServer()
    yield found
    found.close()


@pytest.mark.parametrize(
    "arguments", [("presets",), ("train", "asr-ctc/tiny", "trainin.max_steps=3")]
)
def test_output_and_exit_code_are_those_of_the_script(
    server: CommandServer, arguments: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    forked, script = server.run(arguments), run_script(arguments)
    assert forked.returncode == script.returncode
    assert (forked.stdout, forked.stderr) == (script.stdout, script.stderr)
    assert forked.stdout or forked.stderr


def test_a_command_runs_here_and_leaves_nothing_behind(
    server: CommandServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGINS", "voicehub-asr-ctc")
    assert server.run(["new-plugin", "hush"]).returncode == 0
    assert list(tmp_path.iterdir())
    assert server.run(["train", "asr-ctc/tiny"]).returncode != 0
    monkeypatch.delenv("VOICEHUB_DISABLE_PLUGINS")
    again = server.run(["presets"])
    assert again.returncode == 0 and "asr-ctc/tiny" in again.stdout

"""Which interpreter of a host is taken. Here they are scripts that tell what they shall."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_sshd import Host
from voicehub_remote import image
from voicehub_remote.environment import prepare_environment
from voicehub_remote.environment_request import EnvironmentRequest
from voicehub_remote.errors import RemoteError
from voicehub_remote.image import find_image
from voicehub_remote.places import Places
from voicehub_remote.ssh import Remote


@pytest.fixture
def remote(sshd: Host) -> Iterator[Remote]:
    with Remote(sshd.target()) as remote:
        yield remote


@pytest.fixture
def fake(sshd: Host) -> Iterator[Callable[..., str]]:
    """Puts an interpreter there that tells this of itself, and returns its path."""
    made: list[Path] = []

    def make(name: str, **told: Any) -> str:
        path = sshd.folder / name
        known = {"python": str(path), "version": "3.11.2", **told}
        asked = f"echo {name} >> {sshd.home}/asked"
        answer = f"echo noise; echo 'voicehub-probe {json.dumps(known)}'"
        path.write_text(f"#!/bin/sh\n{asked}\n{answer}\n")
        path.chmod(0o755)
        made.append(path)
        return str(path)

    yield make
    for path in made:
        path.unlink()
    (sshd.home / "asked").unlink(missing_ok=True)


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda *names: monkeypatch.setattr(image, "CANDIDATES", names)


def test_working_cuda_is_better_than_an_earlier_place(
    sshd: Host, remote: Remote, fake: Callable[..., str], candidates: Callable[..., None]
) -> None:
    cpu = fake("cpu-python", torch="2.5", why="built without CUDA")
    gpu = fake("gpu python", torch="2.4", cuda=True, device="H100", pins={"torch": "2.4"})
    other = fake("other-python", torch="2.6", cuda=True)
    candidates("/nowhere/python", cpu, gpu, other)
    found = find_image(remote, None)
    assert (found.python, found.device) == (gpu, "H100")
    assert found.constraints == ["torch==2.4"]
    assert (sshd.home / "asked").read_text().splitlines() == ["cpu-python", "gpu python"]
    candidates(cpu)
    assert find_image(remote, None).python == cpu
    assert find_image(remote, other).python == other


def test_where_none_has_torch_each_says_why(
    remote: Remote, fake: Callable[..., str], candidates: Callable[..., None]
) -> None:
    bare = fake("bare-python", why="ModuleNotFoundError: torch")
    old = fake("old-python", version="3.8.10")
    candidates(bare, old, "/bin/echo")
    with pytest.raises(RemoteError) as caught:
        find_image(remote, None)
    lines = str(caught.value).splitlines()[1:]
    assert lines == [
        f"  {bare}: ModuleNotFoundError: torch",
        f"  {old}: Python 3.8.10, older than 3.10",
        "  /bin/echo: it ended without an answer",
    ]
    with pytest.raises(
        RemoteError, match="--python /nowhere/python has no torch.*\n.*no such prog"
    ):
        find_image(remote, "/nowhere/python")


def test_a_host_without_cuda_is_refused_with_the_reason(
    remote: Remote, fake: Callable[..., str], sshd: Host
) -> None:
    cpu = fake("cpu-python", torch="2.5", why="torch sees no CUDA device")
    with pytest.raises(
        RemoteError, match=r"CUDA does not work .*torch 2\.5.*no CUDA device.*--cpu"
    ):
        prepare_environment(remote, Places("image"), EnvironmentRequest(cpu))
    assert not (sshd.home / "image").exists()


def test_what_the_probe_tells_of_this_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    import torch

    exec(compile(image.probe_text(), "probe", "exec"), {})
    (answer,) = image._answers("noise\n" + capsys.readouterr().out)
    found = image.Interpreter.parse(answer)
    assert (found.python, found.torch) == (sys.executable, torch.__version__)
    assert Path(str(found.file)) == Path(str(torch.__file__)).resolve()
    assert found.is_usable and found.cuda == torch.cuda.is_available()
    assert f"torch=={found.pins['torch']}" in found.constraints
    assert "voicehub-core" in found.voicehub and any("site-packages" in one for one in found.sites)

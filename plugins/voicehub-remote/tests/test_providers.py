"""Providers of machines: shell commands, and a REST API of RunPod's shape on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from loopback_sshd import free_port
from voicehub_remote.providers.command import CommandProvider
from voicehub_remote.providers.contract import (
    CredentialsError,
    Machine,
    MachineRequest,
    MachineState,
    NoCapacityError,
    Provider,
    ProviderError,
)
from voicehub_remote.providers.http import Api, NoAnswerError
from voicehub_remote.providers.registry import make_provider
from voicehub_remote.providers.runpod import RunPodProvider

from voicehub.cli.app import run
from voicehub.cli.output import UsageError

TOKEN = "rp-loopback-only"
REQUEST = MachineRequest("gpu-1", "H100", 2, "image:tag", 50, "ssh-ed25519 AAAA me")


class Cloud:
    """Answers requests from a list of answers by (method, path), and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, str | None]] = []
        self.answers: dict[tuple[str, str], list[Any]] = {}
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                key = (self.command, self.path)
                cloud.asked.append((*key, body, self.headers.get("Authorization")))
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self.reply(401, {"error": "unauthorized"})
                    return
                left = cloud.answers.get(key, [])
                answer = left.pop(0) if len(left) > 1 else left[0] if left else (404, {}, {})
                if answer == "hang up":
                    self.close_connection = True
                elif answer == "silence":
                    cloud.released.wait(10)
                else:
                    self.reply(*answer)

            def reply(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(code)
                for name, value in {**(headers or {}), "Content-Length": len(data)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

            do_GET = do_POST = do_DELETE = handle_any

        self.released = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def on(self, method: str, path: str, *answers: Any) -> None:
        self.answers[method, path] = list(answers)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    cloud = Cloud()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNPOD_API_KEY", TOKEN)
    thread = threading.Thread(target=cloud.server.serve_forever, args=(0.01,))
    thread.start()
    cloud.on("GET", "/pods", (200, []))
    yield cloud
    cloud.released.set()
    cloud.server.shutdown()
    thread.join()
    cloud.server.server_close()


def runpod(cloud: Cloud, **settings: str) -> RunPodProvider:
    provider = RunPodProvider({"url": cloud.url, **settings})
    pauses: list[float] = []
    object.__setattr__(provider._api, "sleep", pauses.append)
    provider.pauses = pauses  # type: ignore[attr-defined]
    return provider


def pod(status: str = "RUNNING", **more: Any) -> dict[str, Any]:
    return {"id": "p1", "name": "gpu-1", "desiredStatus": status, "costPerHr": 2.5, **more}


def test_a_pod_starts_gets_an_address_and_ends(cloud: Cloud) -> None:
    provider = runpod(cloud)
    cloud.on("POST", "/pods", (201, pod(publicIp="", portMappings=None)))
    machine = provider.up(REQUEST)
    assert (machine.id, machine.state, machine.target) == ("p1", MachineState.STARTING, None)
    assert machine.cost == "2.5 $ an hour"
    method, path, body, header = cloud.asked[-1]
    assert (method, path, header) == ("POST", "/pods", f"Bearer {TOKEN}")
    assert "NVIDIA H100 80GB HBM3" in body["gpuTypeIds"] and body["gpuCount"] == 2
    assert body["ports"] == ["22/tcp"] and body["env"] == {"PUBLIC_KEY": "ssh-ed25519 AAAA me"}
    assert (body["imageName"], body["containerDiskInGb"]) == ("image:tag", 50)
    cloud.on("GET", "/pods/p1", (200, pod(publicIp="192.0.2.7", portMappings={"22": 10341})))
    machine = provider.look(machine)
    assert (machine.state, machine.target) == (MachineState.RUNNING, "root@192.0.2.7:10341")
    cloud.on("GET", "/pods/p1", (200, pod("EXITED")))
    assert provider.look(machine).state is MachineState.STOPPED
    cloud.on("POST", "/pods/p1/stop", (200, pod("EXITED")))
    provider.stop(machine)
    cloud.on("DELETE", "/pods/p1", (204, b""))
    provider.down(machine)
    assert [asked[:2] for asked in cloud.asked[-2:]] == [
        ("POST", "/pods/p1/stop"),
        ("DELETE", "/pods/p1"),
    ]
    cloud.on("GET", "/pods/p1")  # 404
    assert provider.look(machine).state is MachineState.GONE
    cloud.on("DELETE", "/pods/p1")
    provider.down(machine)  # gone already


def test_a_token_that_is_missing_or_refused(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "a-wrong-token")
    with pytest.raises(CredentialsError, match=r"refuses the token in RUNPOD_API_KEY \(401: unau"):
        runpod(cloud).up(REQUEST)
    monkeypatch.delenv("RUNPOD_API_KEY")
    with pytest.raises(CredentialsError, match="RUNPOD_API_KEY is not set"):
        runpod(cloud).up(REQUEST)
    monkeypatch.setenv("OTHER", TOKEN)
    cloud.on("POST", "/pods", (201, pod()))
    assert runpod(cloud, token_env="OTHER").up(REQUEST).id == "p1"
    monkeypatch.setenv("RUNPOD_API_KEY", "two\nlines")
    with pytest.raises(CredentialsError, match="cannot be a token") as caught:
        runpod(cloud).up(REQUEST)
    assert "two" not in str(caught.value)


def test_a_busy_server_is_asked_again_after_the_pause_that_it_names(cloud: Cloud) -> None:
    provider = runpod(cloud)
    cloud.on("POST", "/pods", (429, {"error": "slow down"}, {"Retry-After": "7"}), (201, pod()))
    assert provider.up(REQUEST).id == "p1"
    assert provider.pauses == [7.0]  # type: ignore[attr-defined]
    cloud.on("GET", "/pods/p1", (503, b"<html>down</html>"))
    with pytest.raises(ProviderError, match="answers 503: <html>down"):
        provider.look(Machine("gpu-1", "p1"))
    assert provider.pauses == [7.0, 2.0, 4.0, 8.0]  # type: ignore[attr-defined]


def test_a_failed_creation_is_not_made_twice(cloud: Cloud) -> None:
    cloud.on("POST", "/pods", (500, {"error": "internal"}))
    with pytest.raises(ProviderError, match="answers 500: internal"):
        runpod(cloud).up(REQUEST)
    assert [asked[0] for asked in cloud.asked].count("POST") == 1


def test_no_capacity(cloud: Cloud) -> None:
    said = "There are no longer any instances available with the requested specifications."
    cloud.on("POST", "/pods", (500, {"error": said}))
    with pytest.raises(NoCapacityError, match="No H100 is free now .*no longer any.*another --gpu"):
        runpod(cloud).up(REQUEST)


@pytest.mark.parametrize("answer", ["hang up", "silence", (200, b"<html>")])
def test_a_lost_answer_is_looked_for(cloud: Cloud, answer: Any) -> None:
    """The pod may run and cost: it is taken over."""
    provider = runpod(cloud)
    object.__setattr__(provider._api, "timeout", 0.3)
    cloud.on("POST", "/pods", answer)
    cloud.on("GET", "/pods", (200, []), (200, [{"name": "other"}, pod(id="lost")]))
    assert provider.up(REQUEST).id == "lost"
    cloud.on("GET", "/pods", (200, []))
    with pytest.raises(ProviderError, match="console whether one was started all the same"):
        provider.up(REQUEST)


def test_the_token_is_written_nowhere(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICEHUB_MACHINES", str(tmp_path / "machines"))
    monkeypatch.setenv("HOME", str(tmp_path))
    cloud.on("POST", "/pods", (201, pod(publicIp="192.0.2.7", portMappings={"22": 9})))
    cloud.on("GET", "/pods/p1", (200, pod("EXITED")))
    cloud.on("DELETE", "/pods/p1", (401, {"error": "unauthorized"}))
    up = ["up", "box", "--provider", "runpod", "--set", f"url={cloud.url}", "--gpu", "H100"]
    for words, code in (
        ([*up, "--image", "i", "--dry-run"], 0),
        ([*up, "--image", "i"], 0),
        (["machines"], 0),
        (["down", "box"], 1),
    ):
        assert run(["remote", *words]) == code
    said = "".join(capfd.readouterr())
    assert "$RUNPOD_API_KEY" in said and "stopped" in said and "refuses the token" in said
    assert {header for *_, header in cloud.asked} == {f"Bearer {TOKEN}"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if TOKEN in path.read_text()]
    assert TOKEN not in said


def test_a_name_that_is_taken_there(cloud: Cloud) -> None:
    cloud.on("GET", "/pods", (200, [pod()]))
    with pytest.raises(ProviderError, match="has a pod gpu-1 already"):
        runpod(cloud).up(REQUEST)
    assert all(method == "GET" for method, *_ in cloud.asked)


def test_a_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", TOKEN)
    provider = RunPodProvider({"url": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(NoAnswerError, match="no answer .*refused.*Is the network up"):
        provider.look(Machine("gpu-1", "p1"))


def test_the_token_does_not_follow_a_redirect(cloud: Cloud) -> None:
    elsewhere = {"Location": f"{cloud.url}/elsewhere"}
    cloud.on("GET", "/pods/p1", (302, {}, elsewhere))
    with pytest.raises(ProviderError, match="answers 302"):
        runpod(cloud).look(Machine("gpu-1", "p1"))
    assert all(path != "/elsewhere" for _, path, *_ in cloud.asked)


@pytest.mark.parametrize(
    "url", ["http://example.com", "ftp://x", "https://me:pw@example.com", "rest.runpod.io"]
)
def test_a_token_goes_over_https_only(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Api(url, "T")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [{"volumes": "1"}, {"volume": "x"}, {"interruptible": "yes"}, {"token_env": "a b"}],
)
def test_settings_are_checked(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        RunPodProvider(settings)


def test_what_a_machine_needs() -> None:
    for request in (MachineRequest("m", image="i"), MachineRequest("m", "H100")):
        with pytest.raises(UsageError, match="name"):
            RunPodProvider({}).plan("up", request)


# -- shell commands ------------------------------------------------------------------------------


def command(**commands: str) -> CommandProvider:
    return CommandProvider({"up": "true", **commands})


def test_commands_get_quoted_values_and_say_where_the_machine_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    provider = command(
        up=f"printf '%s|' {{name}} {{gpu}} {{gpus}} {{disk}} {{image}} > {log}; echo me@gpu:22",
        state="echo noise; echo stopped",
        down=f"echo {{name}} {{target}} ${{HOME:+home}} > {log}",
    )
    machine = provider.up(MachineRequest("m", "RTX 4090; rm -rf x", 2))
    assert log.read_text() == "m|RTX 4090; rm -rf x|2|||"
    assert (machine.target, machine.state) == ("me@gpu:22", MachineState.RUNNING)
    assert provider.look(machine).state is MachineState.STOPPED
    provider.down(machine)
    assert log.read_text() == "m me@gpu:22 home\n"
    with pytest.raises(UsageError, match="no command for stop"):
        provider.stop(machine)


def test_a_machine_that_tells_its_address_later() -> None:
    machine = command(up="true").up(REQUEST)
    assert (machine.state, machine.target) == (MachineState.STARTING, None)
    assert command(state="echo gpu:9").look(machine).target == "gpu:9"
    assert command(state="echo starting").look(machine).state is MachineState.STARTING
    with pytest.raises(ProviderError, match="no command for its state"):
        command().look(machine)


def test_commands_that_fail() -> None:
    with pytest.raises(ProviderError, match="exit code 3: echo why >&2; exit 3\n  why"):
        command(up="echo why >&2; exit 3").up(REQUEST)
    with pytest.raises(ProviderError, match=r"ended its output with 'it is up'\. Expected one of"):
        command(up="echo it is up").up(REQUEST)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"up": "x {nam}"},
        {"up": "x 'open"},
        {"up": "x", "sate": "y"},
        {"up": "x --api_key=value"},
        {"up": "x hf_abcdefghijklmnopqrstu"},
    ],
)
def test_commands_are_checked(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        CommandProvider(settings)


# -- by name -------------------------------------------------------------------------------------


def test_providers_by_name() -> None:
    provider: Provider = make_provider("command", {"up": "true"})
    assert provider.plan("up", REQUEST) == ["true"]
    with pytest.raises(UsageError, match="Did you mean 'runpod'"):
        make_provider("runpods", {})


def test_a_provider_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from voicehub.plugins import loading

    monkeypatch.setattr(loading, "names", lambda group: ["mine"])
    monkeypatch.setattr(loading, "load", lambda group, name: lambda values: (group, name, values))
    found: Any = make_provider("mine", {"a": "b"})
    assert found == ("voicehub.remote_providers", "mine", {"a": "b"})

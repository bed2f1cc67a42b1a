"""Runs in tmux, on a stand-in for a host whose folders have blanks and quotes in their names."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from local_host import LocalHost, ended, until
from voicehub_remote.errors import RemoteError
from voicehub_remote.runs import check_free
from voicehub_remote.session import RunState, RunTakenError, all_states, attempt_program

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None or not Path("/proc/self").exists(), reason="needs tmux and /proc"
)


@pytest.fixture
def host() -> Iterator[LocalHost]:
    # Not in tmp_path: the path of a socket is short, and that of a test need not be.
    with TemporaryDirectory(prefix="vh-") as folder:
        home = Path(folder) / "a home"
        home.mkdir()
        host = LocalHost(home)
        yield host
        host.power_off()


def test_the_exit_code_and_all_output_are_kept(host: LocalHost) -> None:
    host.trainer('echo "to stdout: $*"; echo to stderr >&2; exit 7')
    session = host.session("demo")
    assert session.state().state == "none"
    started = session.start(host.description("demo"), {})
    assert (started.attempt, started.begin) == (1, 0)
    state = ended(session)
    assert (state.state, state.code, state.preset, state.output) == (
        "ended", 7, "demo/tiny", "runs/demo",
    )  # fmt: skip
    log = host.log("demo")
    words = "-m voicehub train demo/tiny training.output_dir=runs/demo"
    assert f"to stdout: {words}" in log and "to stderr" in log
    assert log.rstrip().endswith("ended with exit code 7")
    assert "failed with exit code 7" in state.words()
    assert stat.S_IMODE((host.path / "runs/demo").stat().st_mode) == 0o700
    assert session.description() == host.description("demo")


@pytest.mark.parametrize(("code", "end", "word"), [(0, 0, "done"), (3, 4, "FAILED")])
def test_the_command_for_the_end_runs_after_success_and_failure(
    host: LocalHost, code: int, end: int, word: str
) -> None:
    host.trainer(f"exit {code}")
    session = host.session("demo")
    on_end = f'echo "$VOICEHUB_RUN had $VOICEHUB_EXIT_CODE"; exit {end}'
    session.start(host.description("demo", on_end=on_end), {})
    state = ended(session)
    assert (state.code, state.on_end) == (code, str(end))
    assert f"demo had {code}\n" in host.log("demo")
    assert f"the command for the end ended with exit code {end}" in host.log("demo")
    assert f"--on-end: {word}" in state.words()


def test_a_command_for_the_end_that_waits_can_be_cancelled(host: LocalHost) -> None:
    host.trainer("exit 0")
    session = host.session("demo")
    description = host.description("demo", on_end="touch ../it-ran", on_end_delay=5)
    session.start(description, {})
    until(lambda: session.state().state == "ending")
    with pytest.raises(RunTakenError, match="has not run yet"):
        session.start(description, {})
    assert session.stop(now=False).state == "ending"
    state = ended(session)
    assert (state.code, state.on_end) == (0, "cancelled")
    assert not list(host.home.rglob("it-ran"))


def test_secrets_reach_the_trainer_and_no_file(host: LocalHost) -> None:
    value = 'it\'s "a" $secret\n with two lines \\'
    host.trainer('printf %s "$DEMO_VALUE" | cksum; echo begun')
    session = host.session("demo")
    description = host.description("demo", environment=("DEMO_VALUE",))
    session.start(description, {"DEMO_VALUE": value})
    until(lambda: "begun" in host.log("demo"))
    assert host.run("cksum", stdin=value, what="sum").out in host.log("demo")
    files = [path for path in host.home.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"$secret" in path.read_bytes()]


def test_a_host_without_mktemp_and_one_without_room_for_pipes(host: LocalHost) -> None:
    host.trainer("echo it ran; exit 3")
    tools = host.home / "tools"
    tools.mkdir()
    for room in os.environ["PATH"].split(":"):
        for tool in Path(room).glob("*"):
            if tool.name not in ("mktemp", "bash", "ps") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    host.environment["PATH"] = str(tools)
    session = host.session("demo")
    session.start(host.description("demo"), {})
    assert ended(session).code == 3
    assert "it ran" in host.log("demo")
    host.environment["TMPDIR"] = "/nowhere"
    begin = session.start(host.description("demo", on_end="echo never"), {}).begin
    assert ended(session).code == 1
    said = host.log("demo")[begin:]
    assert "no folder for pipes can be made in /nowhere" in said
    assert "it ran" not in said


def test_a_run_whose_variable_did_not_come_fails_and_says_which(host: LocalHost) -> None:
    host.trainer("echo never")
    session = host.session("demo")
    session.start(host.description("demo", environment=("DEMO_VALUE",)), {})
    assert ended(session).code not in (0, None)
    assert "DEMO_VALUE" in host.log("demo")
    assert "never" not in host.log("demo")


def test_a_line_of_setup_that_fails_ends_the_attempt(host: LocalHost) -> None:
    host.trainer('echo "got $WORD"')
    session = host.session("demo")
    session.start(host.description("demo", setup=("export WORD='a b'",)), {})
    assert ended(session).code == 0
    assert "got a b" in host.log("demo")
    for broken in ("false", "echo 'unfinished", "no_such_command_here"):
        begin = session.start(host.description("demo", setup=(broken,)), {}).begin
        assert ended(session).code not in (0, None), broken
        assert "got" not in host.log("demo")[begin:]


def test_of_many_that_start_one_run_at_once_one_does(host: LocalHost) -> None:
    host.trainer("while [ ! -e go ]; do sleep 0.05; done")

    def start(_: int) -> RunState | RemoteError:
        try:
            return host.session("demo").start(host.description("demo"), {})
        except RunTakenError as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(start, range(4)))
    assert sum(isinstance(result, RunState) for result in results) == 1
    (host.path / "project/go").touch()
    state = ended(host.session("demo"))
    assert (state.attempt, state.code) == (1, 0)
    assert not list((host.path / "runs/demo").glob("next.*"))


def test_a_run_that_is_just_beginning_can_be_asked_after(host: LocalHost) -> None:
    folder = host.path / "runs/demo"
    folder.mkdir(parents=True)
    (folder / "log").touch()
    for offset in (None, ""):  # not there yet; made, and about to be written
        if offset is not None:
            (folder / "offset").write_text(offset)
        state = host.session("demo").state(lines=3)
        assert (state.state, state.begin) == ("none", 0)


def test_two_roots_on_one_host_do_not_meet(host: LocalHost) -> None:
    other = LocalHost(host.home, "elsewhere")
    for each, code in ((host, 3), (other, 4)):
        each.trainer(f"while [ ! -e go ]; do sleep 0.05; done; exit {code}")
        each.session("demo").start(each.description("demo"), {})
    (other.path / "project/go").touch()
    assert ended(other.session("demo")).code == 4
    assert host.session("demo").state().state == "running"
    (host.path / "project/go").touch()
    assert ended(host.session("demo")).code == 3


def test_a_killed_trainer_is_told_and_the_run_goes_on_as_another_attempt(host: LocalHost) -> None:
    host.trainer("echo first; kill -KILL $$")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    assert ended(session).code == 137
    host.trainer("echo second")
    begin = session.start(host.description("demo"), {}).begin
    state = ended(session)
    assert (state.attempt, state.code, state.begin) == (2, 0, begin)
    log = host.log("demo")
    assert "first" in log[:begin] and "second" in log[begin:] and "first" not in log[begin:]


def test_after_a_restart_of_the_host_the_run_is_lost_and_starts_again(host: LocalHost) -> None:
    host.trainer("while :; do sleep 0.05; done")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    host.power_off()
    state = session.state()
    assert state.state == "lost"
    assert "the host was restarted" in state.words()
    host.trainer("exit 0")
    assert session.start(host.description("demo"), {}).attempt == 2
    assert ended(session).code == 0


def test_a_trainer_that_nobody_watches_is_not_started_twice(host: LocalHost) -> None:
    host.trainer("trap '' HUP; echo ready; while [ ! -e go ]; do sleep 0.05; done")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    until(lambda: "ready" in host.log("demo"))
    os.kill(int((host.path / "runs/demo/shell").read_text()), signal.SIGKILL)
    until(lambda: session.state().state == "orphan")
    with pytest.raises(RunTakenError, match="exit code will not be known"):
        session.start(host.description("demo"), {})
    session.stop(now=True)
    assert ended(session).state == "lost"


def test_stop_lets_it_save(host: LocalHost) -> None:
    host.trainer("trap 'echo saved; exit 1' INT; echo ready; while :; do sleep 0.05; done")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    until(lambda: "ready" in host.log("demo"))
    assert session.stop(now=False).goes_on
    assert ended(session).code == 1
    assert "saved" in host.log("demo")


def test_stop_now_kills_what_does_not_listen_and_what_it_started(host: LocalHost) -> None:
    host.trainer("trap '' INT TERM; sleep 3210 & echo ready; while :; do sleep 0.05; done")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    until(lambda: "ready" in host.log("demo"))
    session.stop(now=True)
    assert ended(session).code == 137
    until(lambda: not host.processes())


def test_what_a_run_leaves_behind_does_not_hold_up_its_end(host: LocalHost) -> None:
    host.trainer("sleep 3210 & echo left; exit 2")
    session = host.session("demo")
    session.start(host.description("demo"), {})
    assert ended(session).code == 2
    assert "left" in host.log("demo")


def test_a_host_without_a_deployed_project_is_told(host: LocalHost) -> None:
    shutil.rmtree(host.path / "env")
    with pytest.raises(RemoteError, match="voicehub remote deploy"):
        host.session("demo").start(host.description("demo"), {})
    assert not (host.path / "runs").exists()


def test_runs_are_listed_in_the_order_of_their_start(host: LocalHost) -> None:
    host.trainer("exit 0")
    assert all_states(host, host.places) == []  # type: ignore[arg-type]
    for run in ("zebra", "ant"):
        session = host.session(run)
        session.start(host.description(run), {})
        (host.path / "runs" / run / "started").write_text(f"2026-01-0{1 + (run == 'ant')}")
        ended(session)
    listed = all_states(host, host.places)  # type: ignore[arg-type]
    assert [state.run for state in listed] == ["zebra", "ant"]


def test_the_program_of_a_run_holds_names_of_variables_and_not_values(host: LocalHost) -> None:
    description = host.description("demo", environment=("DEMO_VALUE",), on_end="echo 'bye'")
    text = attempt_program(description, "demo")
    assert '"${DEMO_VALUE:?is not set}"' in text
    assert host.run(f"sh -n <<'END'\n{text}END\n", what="parse").code == 0


def test_a_name_and_a_directory_belong_to_one_run(host: LocalHost) -> None:
    mine = host.description("demo")
    there = RunState("demo", "ended", preset="demo/tiny", output="runs/demo")
    check_free([there], mine)
    with pytest.raises(RunTakenError, match=r"belongs to a run of demo/large in runs/demo"):
        check_free([RunState("demo", "ended", preset="demo/large", output="runs/demo")], mine)
    with pytest.raises(RunTakenError, match="where this one would write"):
        check_free([RunState("twin", "running", preset="x/y", output="runs/demo")], mine)
    check_free([RunState("twin", "ended", preset="x/y", output="runs/demo")], mine)


def test_a_run_outlives_its_tmux(host: LocalHost) -> None:
    host.trainer("while [ ! -e go ]; do sleep 0.05; done; echo it went on; exit 5")
    session = host.session("demo")
    session.start(host.description("demo", on_end="echo bye"), {})
    (socket,) = host.home.glob("tmux-*/*")
    host.run(f"tmux -S '{socket}' kill-server", what="end tmux")
    assert session.state().state == "running"
    with pytest.raises(RunTakenError, match="is running"):
        session.start(host.description("demo"), {})
    (host.path / "project/go").touch()
    state = ended(session)
    assert (state.code, state.on_end) == (5, "0")
    assert "it went on\n" in host.log("demo") and "bye\n" in host.log("demo")

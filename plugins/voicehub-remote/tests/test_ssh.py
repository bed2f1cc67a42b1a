"""Scripts and files over a real sshd, and what is said when something fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_sshd import Host, free_port, has_ipv6, make_key
from voicehub_remote.errors import (
    AuthenticationError,
    CommandError,
    ConnectionLostError,
    DiskFullError,
    HostKeyError,
    MissingToolError,
    RemoteTimeoutError,
    UnreachableError,
)
from voicehub_remote.rsync import Transfer
from voicehub_remote.shell_words import through_any_shell, through_sh
from voicehub_remote.ssh import Remote


@pytest.fixture
def remote(sshd: Host) -> Iterator[Remote]:
    with Remote(sshd.target()) as remote:
        yield remote


def test_a_script_runs_in_the_home_there(remote: Remote, sshd: Host) -> None:
    done = remote.run("pwd; id -un; cat; echo aside >&2", what="look", stdin="in\n")
    assert done.out.splitlines() == [str(sshd.home), sshd.user, "in"]
    assert done.err == "aside\n"


def test_any_text_can_be_a_script(remote: Remote) -> None:
    script = "a='two  words'; printf '%s|' \"$a\" '*' '$HOME' \"it's\" 'a\\b'\nprintf end"
    assert remote.run(script, what="print").out == "two  words|*|$HOME|it's|a\\b|end"


def test_a_script_passes_a_shell_of_another_kind() -> None:
    script = 'a=\'it\'"\'"\'s \\012\'; echo "$a `echo b` !x %s"\n\techo "$(cat)"'
    line = through_any_shell(script)
    assert "\n" not in line and "!" not in line
    told = {
        words: subprocess.run(
            ["sh", "-c", words], input="in", capture_output=True, text=True
        ).stdout
        for words in (line, through_sh(script))
    }
    assert told[line] == told[through_sh(script)]
    assert told[line].endswith(" b !x %s\nin\n")


def test_the_login_shell_is_asked_for(sshd: Host) -> None:
    with Remote(sshd.target()) as remote:
        assert remote.run("echo in", what="look").out == "in\n"
        remote._connection._shell = "tcsh"
        script = "a='two  words!'\nprintf '%s|' \"$a\" '*' '$HOME'; cat"
        assert remote.run(script, what="look", stdin="in").out == "two  words!|*|$HOME|in"


def test_what_goes_to_standard_input_need_not_be_text(remote: Remote) -> None:
    value = os.fsdecode(b"a\xff\xfe")
    assert remote.run("od -An -tx1", what="look", stdin=value).out.split() == ["61", "ff", "fe"]


def test_one_connection_serves_all_commands(remote: Remote) -> None:
    ports = {remote.run("echo $SSH_CONNECTION", what="ask").out for _ in range(2)}
    assert len(ports) == 1


def test_where_no_socket_can_be_made_each_command_connects(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {remote.run("echo $SSH_CONNECTION", what="ask").out}
    Path(remote._connection._socket).unlink()
    ports |= {remote.run("echo $SSH_CONNECTION", what="ask").out for _ in range(2)}
    assert len(ports) == 3


def test_a_failure_tells_deed_code_and_last_words(remote: Remote, sshd: Host) -> None:
    with pytest.raises(CommandError, match="could not count the sheep") as caught:
        remote.run("echo first >&2; echo they fled >&2; exit 7", what="count the sheep")
    assert caught.value.code == 7
    assert "they fled" in str(caught.value) and str(sshd.port) in str(caught.value)
    assert remote.run("exit 7", what="try", check=False).code == 7


def test_255_of_a_command_is_no_lost_connection(remote: Remote) -> None:
    with pytest.raises(CommandError) as caught:
        remote.run("exit 255", what="try")
    assert caught.value.code == 255


def test_output_is_shown_as_it_comes(remote: Remote, capfd: pytest.CaptureFixture[str]) -> None:
    assert remote.show("echo out; echo err >&2; exit 5", what="show") == 5
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("out\n", "err\n")
    pieces: list[bytes] = []
    remote.show("echo piece", what="show", on_output=pieces.append)
    assert b"".join(pieces) == b"piece\n"


@pytest.fixture
def noisy(sshd: Host) -> Iterator[None]:
    """The login shell prints something by itself."""
    (sshd.home / ".noisy").touch()
    yield
    (sshd.home / ".noisy").unlink()


def test_what_a_login_shell_prints_is_no_answer(
    remote: Remote, noisy: None, tmp_path: Path
) -> None:
    assert remote.run("echo answer", what="ask").out == "answer\n"
    with pytest.raises(CommandError, match="login shell there prints something by itself"):
        remote.push(tmp_path, "noisy/", Transfer(), what="send")


def test_programs_that_are_missing_here(
    sshd: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Remote(sshd.target()) as remote:
        remote.run("true", what="connect")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MissingToolError, match="no rsync on this machine.*apt-get install"):
            remote.push(tmp_path, "x/", Transfer(), what="send")
    with Remote(sshd.target()) as other, pytest.raises(MissingToolError, match="no ssh on this"):
        other.run("true", what="connect")


def test_a_time_limit(remote: Remote) -> None:
    with pytest.raises(RemoteTimeoutError, match=r"could not wait: no answer in 0\.2 s"):
        remote.run("sleep 30", what="wait", timeout=0.2)


def test_a_broken_connection_is_said(remote: Remote) -> None:
    remote.run("true", what="connect")
    script = (
        'p=$PPID; all=; while [ "$p" -gt 1 ]; do all="$p $all"; p=$(ps -o ppid= -p $p); done; '
        "kill -9 $all 2>/dev/null"  # the server first: the connection has gone with the session
    )
    with pytest.raises(ConnectionLostError, match="attach"):
        # The session's server ends under it, as when the network goes.
        remote.run(f"{script}; sleep 30", what="go on")
    assert remote.run("echo back", what="come back").out == "back\n"


def test_files_go_there_and_come_back(remote: Remote, sshd: Host, tmp_path: Path) -> None:
    source = tmp_path / "my data"
    (source / "deep").mkdir(parents=True)
    (source / "a b.txt").write_text("one")
    (source / "deep" / "é.txt").write_text("two")
    sent = remote.push(source, "some place/", Transfer(checksum=True, files=None), what="send")
    assert (sent.files, sent.bytes) == (2, 6)
    assert (sshd.home / "some place" / "deep" / "é.txt").read_text() == "two"
    (source / "a b.txt").write_text("1ne")
    chosen = Transfer(files=["a b.txt", "deep/é.txt"], checksum=True)
    assert remote.push(source, "some place/", chosen, what="send").files == 1
    fetched = remote.pull("some place/", tmp_path / "back", Transfer(), what="fetch")
    assert fetched.files == 2 and (tmp_path / "back" / "a b.txt").read_text() == "1ne"


def test_an_ipv6_address(sshd: Host, tmp_path: Path) -> None:
    if not has_ipv6():
        pytest.skip("no IPv6 on loopback here")
    (tmp_path / "file").write_text("x")
    with Remote(sshd.target(host="::1")) as remote:
        assert remote.run("echo $SSH_CONNECTION", what="ask").out.startswith("::1 ")
        assert remote.push(tmp_path / "file", "by six", Transfer(), what="send").files == 1
    assert (sshd.home / "by six").read_text() == "x"


def test_a_dry_run_prints_lines_that_a_shell_can_run(
    sshd: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x y").write_text("sent")
    with Remote(sshd.target(), dry_run=True) as remote:
        remote.run('echo "it\'s"\necho two', what="print")
        remote.run("cat", what="read", stdin="secret", stdin_shown="echo shown")
        remote.push(tmp_path, "dry place/", Transfer(files=["x y"]), what="send")
    assert not (sshd.home / "dry place").exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines == remote.commands and len(lines) == 3 and "secret" not in str(lines)
    ran = [
        subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout
        for line in lines
    ]
    assert ran[:2] == ["it's\ntwo\n", "shown\n"]
    assert (sshd.home / "dry place" / "x y").read_text() == "sent"


def refused(sshd: Host, expected: type[Exception], **changes: object) -> str:
    with Remote(sshd.target(**changes)) as remote, pytest.raises(expected) as caught:
        remote.run("true", what="try")
    return str(caught.value)


def test_a_wrong_key(sshd: Host, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    said = refused(sshd, AuthenticationError, identity=other)
    assert f"refused user {sshd.user} with the key {other}" in said and "--identity" in said


def test_a_key_that_others_may_read(sshd: Host, tmp_path: Path) -> None:
    other = tmp_path / "open key"
    other.write_bytes(sshd.key.read_bytes())
    other.chmod(0o644)
    said = refused(sshd, AuthenticationError, identity=other)
    assert f"cannot use the key {other}: others may read the file (chmod 600 it)" in said


def test_a_file_that_is_no_key(sshd: Host, tmp_path: Path) -> None:
    other = tmp_path / "no-key"
    other.write_text("nothing")
    other.chmod(0o600)
    assert f"cannot use the key {other}" in refused(sshd, AuthenticationError, identity=other)


def test_a_host_never_seen_is_trusted_only_when_asked(sshd: Host, tmp_path: Path) -> None:
    fresh = (f"UserKnownHostsFile={tmp_path / 'seen'}", *sshd.options[1:])
    assert "--accept-new-host-key" in refused(sshd, HostKeyError, options=fresh)
    with Remote(sshd.target(options=fresh, accept_new_host_key=True)) as remote:
        assert remote.run("echo in", what="try").out == "in\n"
    with Remote(sshd.target(options=fresh)) as remote:
        assert remote.run("echo in", what="try").out == "in\n"


def test_another_host_key_is_never_accepted(sshd: Host, tmp_path: Path) -> None:
    make_key(tmp_path / "another")
    public = (tmp_path / "another.pub").read_text().rsplit(" ", 1)[0]
    (tmp_path / "seen").write_text(f"[127.0.0.1]:{sshd.port} {public}\n")
    changed = (f"UserKnownHostsFile={tmp_path / 'seen'}", *sshd.options[1:])
    said = refused(sshd, HostKeyError, options=changed, accept_new_host_key=True)
    assert "ANOTHER key" in said and f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'" in said


def test_dead_hosts(sshd: Host, silent_port: int) -> None:
    assert "nothing listens" in refused(sshd, UnreachableError, port=free_port())
    said = refused(sshd, UnreachableError, port=silent_port, connect_timeout=1)
    assert "does not speak ssh" in said
    assert "no host of that name" in refused(sshd, UnreachableError, host="no-such-host.invalid")


def test_missing_programs(sshd: Host, tmp_path: Path) -> None:
    said = "is not installed there.*apt-get install"
    bare, no_rsync = Remote(sshd.target(port=sshd.bare_port)), sshd.target(port=sshd.no_rsync_port)
    with bare as remote, pytest.raises(MissingToolError, match=f"tmux {said}"):
        remote.run("tmux -V", what="look for tmux")
    (tmp_path / "file").write_text("x")
    with Remote(no_rsync) as remote, pytest.raises(MissingToolError, match=f"rsync {said}"):
        remote.push(tmp_path / "file", "file", what="send a file")


def test_a_full_disk_is_named_with_what_is_free(sshd: Host, full_disk: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 1024)
    with Remote(sshd.target(), folder=full_disk) as remote:
        fill = f"head -c 200000 /dev/zero > {full_disk}/zeros"
        for script in (fill, f"echo no more > {full_disk}/more", None):
            with pytest.raises(DiskFullError) as caught:
                if script:
                    remote.run(script, what="write zeros")
                else:
                    remote.push(tmp_path / "big", f"{full_disk}/", what="send")
            said = str(caught.value)
            assert f"the disk is full at {full_disk}" in said and "MB are free" in said
            assert "--root" in said


def test_a_full_disk_by_a_program_of_the_host(sshd: Host) -> None:
    """Without a disk of our own: the kernel says it for /dev/full as well."""
    with Remote(sshd.target()) as remote, pytest.raises(DiskFullError, match="the disk is full"):
        remote.run("head -c 1 /dev/zero > /dev/full", what="write")

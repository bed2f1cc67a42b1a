"""Runs on hosts where something is missing, over a real ssh."""

from __future__ import annotations

import shlex

import pytest
from local_host import ended
from loopback_sshd import Host
from remote_runs import prepared
from voicehub_remote.description import Description
from voicehub_remote.errors import DiskFullError, MissingToolError, RemoteError
from voicehub_remote.places import Places
from voicehub_remote.session import Session
from voicehub_remote.ssh import Remote

from voicehub.cli.launch_files import JobRequest
from voicehub.cli.launch_plan import LaunchPlan

DESCRIPTION = Description(LaunchPlan(("train", "demo/tiny")), JobRequest("demo"), "runs/demo")


def test_without_tmux_it_says_what_to_install(sshd: Host) -> None:
    with Remote(sshd.target(port=sshd.bare_port)) as remote:
        session = prepared(sshd, remote, "no tmux", "exit 0")
        with pytest.raises(MissingToolError, match=r"tmux is not installed there.*install"):
            session.start(DESCRIPTION, {})


def test_the_exit_code_is_kept_though_the_disk_is_full(sshd: Host) -> None:
    if sshd.full_disk is None:
        pytest.skip("no small disk can be mounted here")
    root = f"{sshd.full_disk}/of a run"
    with Remote(sshd.target()) as remote:
        trainer = "cat /dev/zero >../fill; echo full; exit 3"
        session = prepared(sshd, remote, root, trainer)
        session.start(DESCRIPTION, {})
        state = ended(session)
        assert (state.state, state.code) == ("ended", 3)
        with pytest.raises(DiskFullError, match="the disk is full"):
            session.start(DESCRIPTION, {})
        assert session.state().code == 3  # what was there is not lost by a start that failed
        remote.run(f"rm -rf {shlex.quote(root)}", what="tidy up")


def test_a_key_that_is_not_let_in_starts_nothing(sshd: Host) -> None:
    with Remote(sshd.target(user="nobody-here")) as remote, pytest.raises(RemoteError):
        Session(remote, Places("x"), "demo").start(DESCRIPTION, {})

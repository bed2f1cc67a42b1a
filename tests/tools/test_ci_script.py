"""`.ci/run` brings the programs that tests talk to where it may, and says so where it may not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "run"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

# The machine as a test wants it; each notes in `log` how it was called.
STAND_INS = {
    "id": 'if [ "$1" = -u ]; then echo "$UID_HERE"; else exit "$NO_SUCH_USER"; fi',
    "sudo": '[ "$SUDO_ANSWERS" = 1 ] || exit 1; shift; exec "$@"',
    "dpkg-query": 'shift 3; [ "$INSTALLED" = 1 ] && printf "ok installed\\n%.0s" "$@"',
    "apt-get": 'echo "apt-get $*" >> "$LOG"; exit "$APT_CODE"',
    "useradd": 'echo "useradd $*" >> "$LOG"',
    "python": 'echo "$(pwd): python $* ssh=$VOICEHUB_REQUIRE_SSH slurm=$VOICEHUB_REQUIRE_SLURM '
    'user=$VOICEHUB_SSH_TEST_USER" >> "$LOG"; case "$*" in *nox\\ -s*) exit "$TESTS_CODE";; esac',
}
BARE = {
    "UID_HERE": "0", "SUDO_ANSWERS": "0", "NO_SUCH_USER": "1", "INSTALLED": "0", "APT_CODE": "0",
    "TESTS_CODE": "0",
}  # fmt: skip


def ci_run(tmp_path: Path, code: int = 0, **machine: str) -> tuple[list[str], str]:
    """What the script does on such a machine: the calls it makes, and what it says.

    Args:
        code: how it must end.
    """
    programs, log = tmp_path / "bin", tmp_path / "log"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VOICEHUB_")}
    here = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHON": "python", "LOG": str(log)}
    done = subprocess.run(
        ["bash", SCRIPT], env={**kept, **here, **BARE, **machine}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return log.read_text().splitlines(), done.stderr


@pytest.mark.parametrize("machine", [{}, {"UID_HERE": "1000", "SUDO_ANSWERS": "1"}])
def test_programs_are_installed_and_then_required(tmp_path: Path, machine: dict[str, str]) -> None:
    calls, said = ci_run(tmp_path, **machine)
    assert calls[0].endswith(" update")
    assert calls[1].startswith("apt-get -qq") and "--no-install-recommends" in calls[1]
    assert calls[1].endswith("openssh-server openssh-client rsync tmux slurm-wlm munge")
    assert calls[2].startswith("useradd") and calls[2].endswith("--password * voicehub-test")
    assert f"{ROOT}: python -m nox -s tests job_files ssh=1 slurm=1 user=voicehub-test" in calls
    assert said == ""


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    calls, said = ci_run(tmp_path, INSTALLED="1", NO_SUCH_USER="0")
    assert said == ""
    assert calls[0].startswith(f"{ROOT}: python -m pip install nox ")
    assert calls[1:] == [
        f"{ROOT}: python -m nox -s tests job_files ssh=1 slurm=1 user=voicehub-test"
    ]


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({"APT_CODE": "100"}, "apt-get could not install"),
        ({"UID_HERE": "1000"}, "this is not root, and sudo asks for a password"),
    ],
)
def test_without_them_the_tests_run_all_the_same(
    tmp_path: Path, machine: dict[str, str], why: str
) -> None:
    calls, said = ci_run(tmp_path, **machine)
    assert why in said and "tests of ssh and Slurm run only if" in said
    assert f"{ROOT}: python -m nox -s tests job_files ssh= slurm= user=" in calls


def test_it_fails_when_the_tests_do(tmp_path: Path) -> None:
    ci_run(tmp_path, code=7, TESTS_CODE="7", INSTALLED="1")

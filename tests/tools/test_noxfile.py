"""The sessions that documentation and continuous integration rely on exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "dev", "quickstart", "tests", "bars", "lint", "typing", "docs", "build", "bench", "job_files",
}  # fmt: skip


def listed(*arguments: str) -> dict[str, str]:
    """Sessions that nox would run, with their descriptions."""
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "-l", "--json"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return {entry["session"]: entry["description"] for entry in json.loads(result.stdout)}


def test_tests_are_the_default() -> None:
    assert set(listed()) == {"tests"}


def test_every_promised_session_exists_and_says_what_it_does() -> None:
    sessions = listed("-s", *sorted(PROMISED))
    assert set(sessions) == PROMISED
    assert all(sessions.values())

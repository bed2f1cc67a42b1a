"""Who is writing a staging directory, and whether that process still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from voicehub.checkpoints.layout import OWNER_FILE
from voicehub.checkpoints.strict_json import dump_json, parse_json


def write_owner(directory: Path, run_id: str) -> None:
    """Record this process as the one that writes in ``directory``."""
    owner = {
        "run_id": run_id,
        "host": socket.gethostname(),
        "boot": _boot_id(),
        "pid": os.getpid(),
        "started": _start_time(os.getpid()),
    }
    (directory / OWNER_FILE).write_bytes(dump_json(owner, "owner"))


def read_owner(directory: Path) -> dict[str, Any] | None:
    """Return the recorded owner, or ``None`` where it is missing or unreadable."""
    try:
        owner = parse_json((directory / OWNER_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return owner if isinstance(owner, dict) else None


def is_abandoned(owner: dict[str, Any] | None, run_id: str | None) -> bool:
    """Tell whether nobody writes any more what ``owner`` began.

    On this machine the process is looked up. A directory begun on another machine counts as
    abandoned only by the run that it belongs to, since whoever continues the run has replaced it.
    """
    if owner is None:
        return True
    if owner.get("host") != socket.gethostname():
        return run_id is not None and owner.get("run_id") == run_id
    if owner.get("boot") != _boot_id():
        return True
    pid = owner.get("pid")
    if not isinstance(pid, int) or not _exists(pid):
        return True
    # A number may have been given to another process since; its start time tells.
    return _start_time(pid) != owner.get("started")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot; ``None`` where unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name, in parentheses, may itself hold spaces and parentheses.
    return stat.rpartition(")")[2].split()[19]

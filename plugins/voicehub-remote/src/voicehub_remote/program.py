"""Small Python programs that run on the host in the environment there; nothing is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from voicehub_remote.errors import RemoteError
from voicehub_remote.places import quoted
from voicehub_remote.shell_words import one_line

if TYPE_CHECKING:
    from voicehub_remote.places import Places
    from voicehub_remote.ssh import Remote


def run_program(
    remote: Remote, places: Places, name: str, request: Mapping[str, Any], *, what: str
) -> dict[str, Any] | None:
    """Run ``on_host/NAME.py`` there and return what it tells; None in a dry run.

    Args:
        request: goes to its ``main``.
        what: the deed, for errors.

    Raises:
        RemoteError: it failed, or there is no environment.
    """
    source = resources.files("voicehub_remote.on_host") / f"{name}.py"
    program = f"{source.read_text(encoding='utf-8')}\n\nmain(json.loads({json.dumps(request)!r}))\n"
    # -I: neither the folder that we are in nor variables of the host choose what is imported.
    script = f"exec {quoted(places.python)} -I -"
    shown = one_line(["printf", "%s", program]) if remote.dry_run else None
    done = remote.run(script, what=what, stdin=program, stdin_shown=shown)
    if remote.dry_run:
        return None
    lines = done.out.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise RemoteError(
            f"{remote.target}: could not {what}: the program there answered {done.out[-200:]!r}."
        ) from None
    return found

"""All that ``voicehub remote deploy`` does, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from voicehub_remote.environment import Prepared, prepare_environment, require_environment
from voicehub_remote.environment_request import EnvironmentRequest
from voicehub_remote.errors import CommandError, RemoteError
from voicehub_remote.places import Places
from voicehub_remote.project import Upload
from voicehub_remote.rsync import Sent, size_text
from voicehub_remote.session import all_states, on_host
from voicehub_remote.ssh import Remote

_TAKEN = 5  # exit code of lock.sh
# tmux is for `train`: whoever has none shall hear of it now.
_LOOK = (
    "for tool in rsync tmux; do command -v $tool >/dev/null || "
    '{ echo "$tool: command not found" >&2; exit 127; }; done'
)


def deploy_to(
    remote: Remote, places: Places, upload: Upload, request: EnvironmentRequest | None
) -> tuple[dict[str, Any], str | None]:
    """Send files and prepare the environment; returns what was done, and a text that says so.

    Args:
        request: None leaves the environment alone; it must be there.

    Raises:
        UsageError: something looks like a secret; the host was not touched.
        RemoteError: the host lacks a program, cannot take it, or has no fitting torch; or another
            deploy is going on there.
    """
    upload.check(remote.say)
    remote.run(_LOOK, what="look for the programs that it needs")
    going = [state.run for state in all_states(remote, places) if state.goes_on]
    if going:
        remote.say(
            f"note: {', '.join(going)} goes on there, and what it has not read yet it will read as "
            "it is now. `voicehub remote stop` ends a run with a checkpoint."
        )
    prepared: Prepared | None = None
    with _alone(remote, places):
        sent = upload.send(remote, places)
        if request is None:
            require_environment(remote, places)
        else:
            prepared = prepare_environment(remote, places, request)
    result = _result(remote, places, sent, prepared)
    return result, None if remote.dry_run else _human(remote, places, sent, prepared)


@contextmanager
def _alone(remote: Remote, places: Places) -> Iterator[None]:
    """No other deploy writes below this root meanwhile."""
    script = on_host("lock", root=places.root, run="")
    with ExitStack() as stack:
        try:
            stack.enter_context(remote.hold(script, what=f"write below {places.root}"))
        except CommandError as error:
            if error.code != _TAKEN:
                raise
            raise RemoteError(
                f"{remote.target}: another deploy writes below {places.root} now. Wait until it is "
                "done, or choose another --root."
            ) from None
        yield


def _result(
    remote: Remote, places: Places, sent: Sent, prepared: Prepared | None
) -> dict[str, Any]:
    result: dict[str, Any] = {"host": str(remote.target), "root": places.root}
    if remote.dry_run:
        return {**result, "commands": remote.commands}
    result |= {"files": sent.files, "bytes": sent.bytes}
    if prepared is not None:
        image = prepared.image
        result["environment"] = {
            "python": image.python,
            "torch": image.torch,
            "device": image.device,
            "sources": prepared.sent.files,
            "installed": prepared.installed,
        }
    return result


def _human(remote: Remote, places: Places, sent: Sent, prepared: Prepared | None) -> str:
    lines = [
        f"{remote.target}: sent {sent.files} files ({size_text(sent.bytes)}) to {places.project}"
    ]
    if prepared is None:
        lines.append("environment: left alone (--skip-setup)")
    else:
        did = "installed" if prepared.installed else "as it was"
        lines.append(
            f"environment: {did}, {prepared.sent.files} source files of VoiceHub sent, torch "
            f"{prepared.image.torch} of {prepared.image.python}"
        )
    lines.append(f"train there with: voicehub remote train {remote.target} PRESET KEY=VALUE...")
    return "\n".join(lines)

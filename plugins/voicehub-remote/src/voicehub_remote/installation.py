"""What pip installs into the environment on the host, and with which words."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence

from voicehub_remote.distributions import Installed
from voicehub_remote.environment_request import EnvironmentRequest
from voicehub_remote.errors import CommandError, MissingToolError
from voicehub_remote.image import Interpreter
from voicehub_remote.places import Places, quoted
from voicehub_remote.shell_words import line_by_line, writes
from voicehub_remote.ssh import Remote
from voicehub_remote.streaming import LineFilter

_NO_PIP = 96


def requirements_of(packages: Sequence[Installed], request: EnvironmentRequest) -> list[str]:
    """What pip shall install: versions of what came from an index, and what sources need."""
    released = [f"{one.name}=={one.version}" for one in packages if not one.is_checkout]
    if not request.with_dependencies:
        return released
    return released + sorted({line for one in packages if one.is_checkout for line in one.requires})


def digest_of(lines: Sequence[str], pins: Sequence[str], request: EnvironmentRequest) -> str:
    """Tells whether what pip shall install is what it has installed."""
    project = request.requirements.read_bytes() if request.requirements is not None else b""
    text = json.dumps([list(lines), list(pins), request.with_dependencies]).encode()
    return hashlib.sha256(text + b"\0" + project).hexdigest()


def install(
    remote: Remote,
    places: Places,
    lines: Sequence[str],
    image: Interpreter,
    request: EnvironmentRequest,
) -> None:
    """Run pip, with the image's torch as a constraint, and show its output.

    Args:
        remote, places: where.
        lines: of ``requirements_of``.
        image: what must stay as it is.
        request: for the project's own requirements.

    Raises:
        MissingToolError: there is no pip.
        CommandError: pip failed.
    """
    files = {
        "constraints.txt": line_by_line(image.constraints),
        "requirements.txt": line_by_line(lines),
    }
    if request.requirements is not None:
        files["project.txt"] = request.requirements.read_text(encoding="utf-8")
    for name, text in files.items():
        path = quoted(f"{places.environment}/{name}")
        remote.run(f"cat > {path}", what=f"write {name}", stdin=text, stdin_shown=writes(text))
    what = "install what VoiceHub and the project need"
    lines_shown = LineFilter(remote.printer(), without=b"Requirement already satisfied")
    code = remote.show(_pip(places, request), what=what, on_output=lines_shown)
    lines_shown.end()
    if code == _NO_PIP:
        raise MissingToolError(
            f"{remote.target}: {image.python} has no pip, and none could be made. Install it there "
            "(`apt-get install -y python3-pip`), or give --skip-setup if all is there.",
            code=code,
        )
    if code:
        raise CommandError(
            f"{remote.target}: could not {what}: pip ended with exit code {code}; its reason "
            "stands above. torch and what belongs to it are held at the image's versions. "
            "--skip-deps installs without dependencies.",
            code=code,
        )


def _pip(places: Places, request: EnvironmentRequest) -> str:
    """Script that runs pip in the project, as requirements may name files of it."""
    named = ['-r "$env/requirements.txt"']
    choose = ""
    if request.requirements is not None:
        # The file itself where it was sent: it may name others beside it.
        choose = (
            f"file={shlex.quote(request.place)}; "
            '[ -n "$file" ] && [ -f "$file" ] || file=$env/project.txt; '
        )
        named.append('-r "$file"')
    options = "" if request.with_dependencies else " --no-deps"
    return (
        f"env=$(cd {quoted(places.environment)} && pwd) && cd {quoted(places.project)} || exit; "
        'python=$env/bin/python; "$python" -m pip --version >/dev/null 2>&1 || '
        f'"$python" -m ensurepip >/dev/null 2>&1 || exit {_NO_PIP}; {choose}'
        'exec "$python" -m pip install --no-input --disable-pip-version-check'
        f'{options} -c "$env/constraints.txt" {" ".join(named)}'
    )

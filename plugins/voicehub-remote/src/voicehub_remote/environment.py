"""The Python environment on the host: the image's torch, untouched, and the packages of here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from voicehub_remote.distributions import Installed, installed, stage
from voicehub_remote.environment_request import EnvironmentRequest
from voicehub_remote.errors import RemoteError
from voicehub_remote.image import Interpreter, ask, find_image
from voicehub_remote.installation import digest_of, install, requirements_of
from voicehub_remote.places import Places, quoted
from voicehub_remote.rsync import Sent, Transfer
from voicehub_remote.shell_words import line_by_line, one_line, writes
from voicehub_remote.ssh import Remote

_STAMP = "voicehub-environment.json"
_NEVER_SENT = ("__pycache__", "*.pyc", ".*.swp")


@dataclass(frozen=True)
class Prepared:
    """How it ended.

    Attributes:
        image: the interpreter whose torch is used.
        sent: sources of packages.
        installed: whether pip had to run.
    """

    image: Interpreter
    sent: Sent
    installed: bool


def prepare_environment(remote: Remote, places: Places, request: EnvironmentRequest) -> Prepared:
    """Make the environment, or bring it up to date, and check it.

    Raises:
        RemoteError: no torch there, CUDA does not work, pip fails, or torch was replaced.
    """
    packages = installed()
    stamp = _Stamp.read(remote, places)
    image = _image(remote, places, request, stamp)
    if stamp is None or stamp.image != image:
        _make(remote, places, image)
        # Before pip runs, which may fail and be run again: what it got is kept then.
        stamp = _Stamp(request.python, image, "")
        stamp.write(remote, places)
    sent = _send_sources(remote, places, packages)
    lines = requirements_of(packages, request)
    digest = digest_of(lines, image.constraints, request)
    runs_pip = stamp.digest != digest and bool(lines or request.requirements)
    if runs_pip:
        install(remote, places, lines, image, request)
    _check(remote, places, image, packages, request)
    if stamp != (now := _Stamp(request.python, image, digest)):
        now.write(remote, places)
    return Prepared(image, sent, runs_pip)


def require_environment(remote: Remote, places: Places) -> None:
    """For ``--skip-setup``: there must be one.

    Raises:
        RemoteError: there is none.
    """
    done = remote.run(
        f"test -x {quoted(places.python)}", what="look for the environment", check=False
    )
    if done.code:
        raise RemoteError(
            f"{remote.target}: there is no environment in {places.environment} yet. Leave out "
            "--skip-setup once."
        )


@dataclass(frozen=True)
class _Stamp:
    """What the environment was made of. It lies within, and goes with it."""

    asked: str | None
    image: Interpreter
    digest: str

    @classmethod
    def read(cls, remote: Remote, places: Places) -> _Stamp | None:
        path = quoted(f"{places.environment}/{_STAMP}")
        done = remote.run(f"cat {path} 2>/dev/null || :", what="look at the environment")
        try:
            told = json.loads(done.out)
            return cls(told["asked"], Interpreter.parse(told["image"]), told["digest"])
        except (ValueError, KeyError, TypeError):
            return None  # none yet, or one that was cut off

    def write(self, remote: Remote, places: Places) -> None:
        told = {"asked": self.asked, "image": asdict(self.image), "digest": self.digest}
        path = quoted(f"{places.environment}/{_STAMP}")
        remote.run(
            f"cat > {path}",
            what="note what the environment is made of",
            stdin=json.dumps(told),
            stdin_shown="echo '{}'",
        )


def _image(
    remote: Remote, places: Places, request: EnvironmentRequest, stamp: _Stamp | None
) -> Interpreter:
    """The interpreter that the environment was made of, if it is still there as it was."""
    if stamp is not None and stamp.asked == request.python:
        done = remote.run(
            f"test -x {quoted(stamp.image.python)} && test -x {quoted(places.python)}",
            what="look for the interpreter",
            check=False,
        )
        if done.code == 0 and (stamp.image.cuda or request.cpu):
            return stamp.image
    image = find_image(remote, request.python)
    if not image.cuda and not request.cpu and not remote.dry_run:
        raise RemoteError(
            f"{remote.target}: CUDA does not work with {image.python} (torch {image.torch}): "
            f"{image.why}. Take another image or --python, or give --cpu to train without."
        )
    if not remote.dry_run:
        remote.say(f"torch is that of {image.words()}")
    return image


def _make(remote: Remote, places: Places, image: Interpreter) -> None:
    """A fresh venv that finds the image's packages behind its own and behind our sources."""
    # Lines of a .pth are relative to the folder that it lies in: <env>/lib/pythonX.Y/site-packages.
    lines = ["../../../../sources"]
    # `addsitedir` reads the .pth files in there as well, as the image's interpreter does.
    lines += [f"import site; site.addsitedir({path!r})" for path in image.sites]
    environment, python = quoted(places.environment), quoted(places.python)
    script = (
        f"mkdir -p {quoted(places.sources)} && rm -rf {environment} && "
        f"{quoted(image.python)} -m venv --without-pip {environment} && "
        f"site=$({python} -I -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))') && "
        'cat > "$site/voicehub-image.pth"'
    )
    for name, module in (("voicehub", "voicehub"), ("torchrun", "torch.distributed.run")):
        path = quoted(f"{places.environment}/bin/{name}")
        # Not with the interpreter's path in the first line: that may be long and hold blanks.
        start = f'#!/bin/sh\\nexec "$(dirname "$0")/python" -m {module} "$@"\\n'
        script += f" && printf '{start}' > {path} && chmod 755 {path}"
    text = line_by_line(lines)
    remote.run(script, what="make the environment", stdin=text, stdin_shown=writes(text))


def _send_sources(remote: Remote, places: Places, packages: Sequence[Installed]) -> Sent:
    with tempfile.TemporaryDirectory(prefix="voicehub-sources-") as name:
        folder = Path(name)
        stage(list(packages), folder)
        command = "from voicehub_remote.distributions import stage_all; stage_all(%r)"
        remote.local(one_line(["python3", "-c", command % name]))
        transfer = Transfer(checksum=True, delete=True, follow_links=True, exclude=_NEVER_SENT)
        return remote.push(
            folder, f"{places.sources}/", transfer, what="send the sources of VoiceHub"
        )


def _check(
    remote: Remote,
    places: Places,
    image: Interpreter,
    packages: Sequence[Installed],
    request: EnvironmentRequest,
) -> None:
    """torch must be the image's, our packages those of here, and CUDA must compute."""
    found = ask(remote, places.python)
    if remote.dry_run:
        return
    if (found.torch, found.file) != (image.torch, image.file):
        raise RemoteError(
            f"{remote.target}: the environment's torch is {found.torch or found.why} at "
            f"{found.file}, and the image's was {image.torch} at {image.file}. Either something "
            "that was installed replaced it (look into requirements.txt), or the image is another "
            "one now. "
            f"Remove {places.environment} there and deploy again."
        )
    other = [
        f"{one.name} {found.voicehub.get(one.name, 'missing')} instead of {one.version}"
        for one in packages
        if one.name.startswith("voicehub-") and found.voicehub.get(one.name) != one.version
    ]
    if other:
        raise RemoteError(f"{remote.target}: the environment has {', '.join(other)}.")
    if not found.cuda and not request.cpu:
        raise RemoteError(
            f"{remote.target}: CUDA does not work in {places.environment}: {found.why}. Give --cpu "
            "to train without."
        )

"""The Python environment on the host: the image's torch, untouched, and the packages of here."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from voicehub.cli.output import UsageError
from voicehub_remote.distributions import Installed, installed, stage
from voicehub_remote.errors import CommandError, MissingToolError, RemoteError
from voicehub_remote.image import Interpreter, ask, find_image
from voicehub_remote.places import Places, quoted
from voicehub_remote.rsync import Sent, Transfer
from voicehub_remote.shell_words import one_line
from voicehub_remote.ssh import Remote

_STAMP = "voicehub-environment.json"
_NO_PIP = 96
_NEVER_SENT = ("__pycache__", "*.pyc", ".*.swp")


@dataclass(frozen=True)
class EnvironmentRequest:
    """What the environment shall be.

    Attributes:
        python: interpreter of the host that has torch; None looks for one.
        requirements: file of the project with further requirements; None: there is none.
        cpu: a host without working CUDA will do.
        with_dependencies: False installs what is named, without what that requires.
    """

    python: str | None = None
    requirements: Path | None = None
    cpu: bool = False
    with_dependencies: bool = True


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
        stamp = None
    sent = _send_sources(remote, places, packages)
    lines = _requirements(packages, request)
    digest = _digest(lines, image.constraints, request)
    runs_pip = (stamp is None or stamp.digest != digest) and bool(lines or request.requirements)
    if runs_pip:
        _install(remote, places, lines, image, request)
    _check(remote, places, image, packages, request)
    if stamp is None or stamp.digest != digest:
        _Stamp(request.python, image, digest).write(remote, places)
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


def find_requirements(project: Path, asked: Path | None) -> Path | None:
    """The file that is asked for, or the project's ``requirements.txt`` where there is one.

    Raises:
        UsageError: what is asked for is not there.
    """
    if asked is not None:
        if not asked.is_file():
            raise UsageError(f"--requirements {asked}: there is no such file.")
        return asked
    usual = project / "requirements.txt"
    return usual if usual.is_file() else None


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
            f"cat > {path}", what="note what the environment is made of", stdin=json.dumps(told)
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
    text = "".join(f"{line}\n" for line in lines)
    remote.run(script, what="make the environment", stdin=text, stdin_shown=_shown(text))


def _send_sources(remote: Remote, places: Places, packages: Sequence[Installed]) -> Sent:
    with tempfile.TemporaryDirectory(prefix="voicehub-sources-") as name:
        folder = Path(name)
        stage(list(packages), folder)
        transfer = Transfer(checksum=True, delete=True, follow_links=True, exclude=_NEVER_SENT)
        return remote.push(
            folder, f"{places.sources}/", transfer, what="send the sources of VoiceHub"
        )


def _requirements(packages: Sequence[Installed], request: EnvironmentRequest) -> list[str]:
    """What pip shall install: versions of what came from an index, and what sources need."""
    released = [f"{one.name}=={one.version}" for one in packages if not one.is_checkout]
    if not request.with_dependencies:
        return released
    return released + sorted({line for one in packages if one.is_checkout for line in one.requires})


def _digest(lines: Sequence[str], pins: Sequence[str], request: EnvironmentRequest) -> str:
    project = request.requirements.read_bytes() if request.requirements is not None else b""
    text = json.dumps([list(lines), list(pins), request.with_dependencies]).encode()
    return hashlib.sha256(text + b"\0" + project).hexdigest()


def _install(
    remote: Remote,
    places: Places,
    lines: Sequence[str],
    image: Interpreter,
    request: EnvironmentRequest,
) -> None:
    """pip, with the image's torch as a constraint; its output is shown."""
    python, files = quoted(places.python), {
        "constraints.txt": "".join(f"{line}\n" for line in image.constraints),
        "requirements.txt": "".join(f"{line}\n" for line in lines),
    }  # fmt: skip
    if request.requirements is not None:
        files["project.txt"] = request.requirements.read_text(encoding="utf-8")
    for name, text in files.items():
        path = quoted(f"{places.environment}/{name}")
        remote.run(f"cat > {path}", what=f"write {name}", stdin=text, stdin_shown=_shown(text))
    named = [f"-r {quoted(f'{places.environment}/{name}')}" for name in files if name[0] != "c"]
    options = "" if request.with_dependencies else " --no-deps"
    script = (
        f"{python} -m pip --version >/dev/null 2>&1 || {python} -m ensurepip >/dev/null 2>&1 || "
        f"exit {_NO_PIP}; exec {python} -m pip install --no-input --disable-pip-version-check"
        f"{options} -c {quoted(f'{places.environment}/constraints.txt')} {' '.join(named)}"
    )
    what = "install what VoiceHub and the project need"
    code = remote.show(script, what=what)
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


def _shown(text: str) -> str:
    """Shell that writes a short text, for a dry run."""
    return one_line(["printf", "%s", text])

"""Runs on the sshd of the tests with a trainer in shell: nothing needs to be deployed for them."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_host import INTERPRETER
from loopback_sshd import Host
from voicehub_remote.places import Places
from voicehub_remote.session import Session
from voicehub_remote.ssh import Remote

from voicehub.cli.app import run


def prepared(host: Host, remote: Remote, root: str, trainer: str) -> Session:
    """A root as `deploy` leaves it, with this trainer; and the session of its run ``demo``."""
    here, interpreter = shlex.quote(root), INTERPRETER.replace("PYTHON", host.python)
    remote.run(
        f"mkdir -p {here}/env/bin {here}/project && cd {here} && "
        f"printf %s {shlex.quote(interpreter)} >env/bin/python && chmod 755 env/bin/python && "
        f"printf %s {shlex.quote(trainer)} >project/trainer.sh",
        what="prepare",
    )
    return Session(remote, Places(root), "demo")


@dataclass
class Verbs:
    """``voicehub remote VERB`` for one root of the host and one project here."""

    host: Host
    root: str
    project: Path
    text: str = field(default="", init=False)

    @property
    def folder(self) -> Path:
        """The root on the host."""
        return self.host.home / self.root

    def trainer(self, script: str) -> None:
        with Remote(self.host.target()) as remote:
            prepared(self.host, remote, self.root, script)

    def words(self, verb: str, *words: str) -> list[str]:
        common = ["--root", self.root, "--project", str(self.project)]
        return ["remote", verb, *self.host.arguments, *common, *words]

    def __call__(self, verb: str, *words: str) -> int:
        """Run it; the exit code. What it printed is in ``text``."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                code = run(self.words(verb, *words))
            except SystemExit as error:
                code = int(error.code or 0)
        self.text = out.getvalue()
        return code

    def told(self, verb: str, *words: str) -> dict[str, Any]:
        """The last line of JSON."""
        self(verb, *words, "--json")
        lines = [line for line in self.text.splitlines() if line.startswith("{")]
        return json.loads(lines[-1])  # type: ignore[no-any-return]

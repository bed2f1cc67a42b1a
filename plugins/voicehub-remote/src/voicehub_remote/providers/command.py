"""A provider made of shell commands of the user: whatever starts machines where he is."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from voicehub.cli.launch_plan import refuse_secrets
from voicehub.cli.output import UsageError
from voicehub_remote.explain import tail_of
from voicehub_remote.providers.contract import (
    Deed,
    Machine,
    MachineRequest,
    MachineState,
    ProviderError,
    Settings,
)
from voicehub_remote.target import Target

SETTINGS = {
    "up": "command that starts a machine; its last line is USER@HOST:PORT, where that is known yet",
    "state": "command whose last line is USER@HOST:PORT, starting, stopped or gone",
    "stop": "command that stops the machine and keeps its disk",
    "down": "command that ends the machine with its disk",
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_STATES = {state.value: state for state in MachineState if state is not MachineState.RUNNING}


class CommandProvider:
    """Runs the commands with ``sh``; ``{name}``, ``{gpu}``, ``{gpus}``, ``{image}``, ``{disk}``,
    ``{public_key}`` and ``{target}`` stand for quoted values, empty where there is none.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        Settings(settings, SETTINGS).check("command")
        if not settings.get("up"):
            raise UsageError(
                "The provider command needs the command that starts a machine: --set up='start-one "
                "{name} {gpu}'."
            )
        for key, command in settings.items():
            try:
                refuse_secrets(shlex.split(command))
            except ValueError as error:
                raise UsageError(f"--set {key}: {error}: {command}") from None
            _filled(command, dict.fromkeys(_values(MachineRequest("")), ""))
        self._commands = dict(settings)

    def up(self, request: MachineRequest) -> Machine:
        """Run ``up``."""
        said = self._run("up", _values(request))
        return self._heard(Machine(request.name, request.name), "up", said)

    def look(self, machine: Machine) -> Machine:
        """Run ``state``; without that command, the machine is what ``up`` said."""
        if "state" not in self._commands:
            if machine.target is None:
                raise ProviderError(
                    f"Nobody knows where the machine {machine.name} is: `up` printed no HOST:PORT, "
                    "and there is no command for its state. Give --set state='...'."
                )
            return replace(machine, state=MachineState.RUNNING)
        return self._heard(machine, "state", self._run("state", _of(machine)))

    def stop(self, machine: Machine) -> None:
        """Run ``stop``."""
        self._run("stop", _of(machine))

    def down(self, machine: Machine) -> None:
        """Run ``down``."""
        self._run("down", _of(machine))

    def plan(self, deed: Deed, subject: MachineRequest | Machine) -> list[str]:
        """The command for it, none where the state is not asked for."""
        values = _values(subject) if isinstance(subject, MachineRequest) else _of(subject)
        if deed == "look":
            state = self._commands.get("state")
            return [] if state is None else [_filled(state, values)]
        return [self._command(deed, values)]

    def _command(self, key: str, values: Mapping[str, str]) -> str:
        command = self._commands.get(key)
        if not command:
            raise UsageError(f"The provider command has no command for {key}: --set {key}='...'.")
        return _filled(command, values)

    def _run(self, key: str, values: Mapping[str, str]) -> str:
        filled = self._command(key, values)
        ended = subprocess.run(
            ["sh", "-c", filled],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            said = tail_of(ended.stderr or ended.stdout) or "  it said nothing"
            raise ProviderError(
                f"The command for {key} ended with exit code {ended.returncode}: {filled}\n{said}"
            )
        lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def _heard(self, machine: Machine, key: str, said: str) -> Machine:
        """A machine after its command has said how it stands."""
        if said in ("", MachineState.STARTING.value):
            return replace(machine, state=MachineState.STARTING)
        if said in _STATES:
            return replace(machine, state=_STATES[said], target=None)
        try:
            target = Target.parse(said)
        except UsageError:
            expected = ", ".join(["USER@HOST:PORT", *_STATES])
            raise ProviderError(
                f"The command for {key} ended its output with {said!r}. Expected one of {expected}."
            ) from None
        return replace(machine, state=MachineState.RUNNING, target=str(target))


def _values(request: MachineRequest) -> dict[str, str]:
    return {
        "name": request.name,
        "gpu": request.gpu or "",
        "gpus": str(request.gpus),
        "image": request.image or "",
        "disk": "" if request.disk is None else str(request.disk),
        "public_key": request.public_key or "",
        "target": "",
    }


def _of(machine: Machine) -> dict[str, str]:
    return {**_values(MachineRequest(machine.name)), "target": machine.target or ""}


def _filled(command: str, values: Mapping[str, str]) -> str:
    """The command with quoted values; ``${NAME}`` of the shell stays as it is.

    Raises:
        UsageError: a placeholder is not known.
    """

    def value(match: re.Match[str]) -> str:
        if match.start() and command[match.start() - 1] == "$":
            return match[0]
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise UsageError(f"{match[0]} in the command {command!r} is not known; known: {known}.")
        return shlex.quote(values[match[1]])

    return _PLACEHOLDER.sub(value, command)

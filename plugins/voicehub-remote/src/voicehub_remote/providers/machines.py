"""Which machines we have started, so that none is forgotten: a small file each, no secret in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from voicehub.cli.output import UsageError
from voicehub_remote.providers.contract import Machine, MachineState, Provider
from voicehub_remote.providers.registry import make_provider

FOLDER_VARIABLE = "VOICEHUB_MACHINES"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True)
class Record:
    """A machine, and whom to ask about it."""

    machine: Machine
    provider: str
    settings: Mapping[str, str]

    def open(self) -> Provider:
        """Its provider."""
        return make_provider(self.provider, self.settings)


def folder() -> Path:
    """Where the files lie: ``$VOICEHUB_MACHINES``, or ``voicehub/machines`` in the state folder."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "voicehub" / "machines"


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a machine.

    Raises:
        UsageError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a machine: small letters, digits and '-', a letter first, at "
            "most 40."
        )


def save(record: Record) -> None:
    """Write the file of a machine, for our eyes only."""
    machine = {**asdict(record.machine), "state": record.machine.state.value}
    text = json.dumps(
        {"machine": machine, "provider": record.provider, "settings": dict(record.settings)},
        indent=2,
    )
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _path(record.machine.name)
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text + "\n")
    new.replace(path)


def find(name: str) -> Record | None:
    """The machine of that name, or None.

    Raises:
        UsageError: its file is damaged.
    """
    path = _path(name)
    if not _NAME.fullmatch(name) or not path.is_file():
        return None
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        state = MachineState(told["machine"]["state"])
        machine = replace(Machine(**told["machine"]), state=state)
        return Record(machine, told["provider"], told["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is damaged ({error}). Look with the provider whether the machine {name} runs; "
            "then remove the file."
        ) from None


def require(name: str) -> Record:
    """The machine of that name.

    Raises:
        UsageError: we have started none of that name, or its file is damaged.
    """
    record = find(name)
    if record is None:
        known = ", ".join(names()) or "none"
        raise UsageError(f"There is no machine {name} that was started from here; known: {known}.")
    return record


def names() -> list[str]:
    """Machines that were started from here and not ended."""
    return sorted(path.stem for path in folder().glob("*.json"))


def stop(record: Record) -> Machine:
    """Have the provider stop a machine, without its disk, and remember that.

    Raises:
        ProviderError: it did not.
    """
    record.open().stop(record.machine)
    machine = replace(record.machine, state=MachineState.STOPPED, target=None)
    save(Record(machine, record.provider, record.settings))
    return machine


def forget(name: str) -> None:
    """Remove the file of a machine that is gone."""
    _path(name).unlink(missing_ok=True)


def _path(name: str) -> Path:
    return folder() / f"{name}.json"


def as_dict(machine: Machine) -> dict[str, Any]:
    """For JSON."""
    return {**asdict(machine), "state": machine.state.value}

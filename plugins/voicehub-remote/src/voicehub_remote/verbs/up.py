"""``voicehub remote up``: start a machine of a provider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish, say
from voicehub_remote.options import DryRunOption


def up(
    name: Annotated[str, typer.Argument(help="Name for the machine; other verbs take it as HOST.")],
    provider: Annotated[str, typer.Option(help="command, runpod, or one of another package.")],
    gpu: Annotated[str | None, typer.Option(help="Kind, such as H100.")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    image: Annotated[str | None, typer.Option(help="Image with PyTorch and sshd.")] = None,
    disk: Annotated[int | None, typer.Option(min=1, help="GB.")] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="Key that is let in.", show_default="~/.ssh/id_ed25519.pub")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting of the provider."),
    ] = None,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
) -> None:
    """Start a machine. It costs until `voicehub remote down NAME`, or until it ends itself."""
    from voicehub_remote.providers import machines
    from voicehub_remote.providers.contract import MachineRequest
    from voicehub_remote.providers.registry import make_provider

    machines.check_name(name)
    if machines.find(name) is not None:
        raise UsageError(
            f"The machine {name} was started already: `voicehub remote wait {name}`, or end it "
            f"with `voicehub remote down {name}`."
        )
    settings = dict(_setting(text) for text in set_ or ())
    request = MachineRequest(name, gpu, gpus, image, disk, _public_key(public_key))
    chosen = make_provider(provider, settings)
    if dry_run:
        commands = chosen.plan("up", request)
        for command in commands:
            say(command, json_mode=json_)
        finish({"machine": {"name": name, "commands": commands}}, json_mode=json_)
        return
    machine = chosen.up(request)
    machines.save(machines.Record(machine, provider, settings))
    cost = f", {machine.cost}" if machine.cost else ""
    human = f"{name}: {machine.state.value} at {provider}{cost}. Then: voicehub remote wait {name}"
    finish({"machine": machines.as_dict(machine)}, json_mode=json_, human=human)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: expected KEY=VALUE.")
    return key, value


def _public_key(path: Path | None) -> str | None:
    usual = Path.home() / ".ssh" / "id_ed25519.pub"
    chosen = path or (usual if usual.is_file() else None)
    if chosen is None:
        return None
    try:
        text = chosen.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--public-key {chosen} cannot be read: {error}.") from None
    if "PRIVATE KEY" in text or not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise UsageError(f"--public-key {chosen}: that is no public key. Give the file with .pub.")
    return text

"""``voicehub remote``: its commands, each in a module of ``voicehub_remote.verbs``."""

from __future__ import annotations

import typer

from voicehub_remote.verbs import (
    attach,
    checkpoint,
    deploy,
    down,
    fetch,
    logs,
    status,
    stop,
    train,
    up,
    wait,
)

app = typer.Typer(
    name="remote",
    help="Run on a machine that you can ssh to.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("wait")(wait.wait)
app.command("deploy")(deploy.deploy)
app.command("train")(train.train)
app.command("attach")(attach.attach)
app.command("logs")(logs.logs)
app.command("status")(status.status)
app.command("checkpoint")(checkpoint.checkpoint)
app.command("fetch")(fetch.fetch)
app.command("stop")(stop.stop)
app.command("down")(down.down)
app.command("machines")(down.machines)

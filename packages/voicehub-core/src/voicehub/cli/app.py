"""``voicehub``: the commands, and the ones that plugins add.

Starting up reads names from package metadata and imports no plugin, no torch and no Hydra:
``--help`` must answer at once, and a broken plugin must not break it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from voicehub.cli import (
    checkpoint,
    debug,
    doctor,
    ema,
    eval_,
    launch,
    new_plugin,
    plan,
    plugins_,
    presets_,
    sample,
    synthesize,
    train,
    transcribe,
)
from voicehub.cli.output import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_WRONG_USE,
    print_error,
    print_json_error,
    report_failure,
    report_wrong_use,
    survive_encodings,
)
from voicehub.plugins.groups import COMMANDS

# typer vendors its parser from 0.20 on and used the click package before; both hang their
# exceptions in the same order above BadParameter, so this names the right ones for either.
_ParserUsageError: type[Exception]
_ParserError: type[Exception]
_ParserUsageError, _ParserError = typer.BadParameter.__mro__[1:3]


class PluginCommands(TyperGroup):
    """A command group that also offers the entry points of ``voicehub.commands``.

    Listing shows names and distributions from metadata. Only the command that is run, or whose
    own help is asked for, is imported.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Our commands in their order, then those of plugins by name."""
        own = super().list_commands(ctx)
        return [*own, *sorted(set(_plugin_commands()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of ours, or a placeholder that stands for a plugin's command in listings."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        summary = _plugin_commands().get(cmd_name)
        if summary is None:
            return None
        return TyperCommand(cmd_name, help=summary, rich_help_panel="Commands of plugins")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the plugin's command that is about to run."""
        if super().get_command(ctx, args[0]) is None and args[0] in _plugin_commands():
            return args[0], _load_plugin_command(args[0]), args[1:]
        return super().resolve_command(ctx, args)


def _plugin_commands() -> dict[str, str]:
    from voicehub.plugins.discovery import PluginState, entry_points

    return {
        entry.name: f"From {entry.distribution} {entry.version}."
        for entry in entry_points(COMMANDS)
        if entry.state is not PluginState.DISABLED
    }


def _load_plugin_command(name: str) -> Any:
    from voicehub.plugins.loading import load

    target = load(COMMANDS, name)
    if not isinstance(target, typer.Typer):
        return target
    command: Any = typer.main.get_command(target)
    # Completion belongs to `voicehub` as a whole, not to one of its commands.
    completion = ("install_completion", "show_completion")
    command.params = [option for option in command.params if option.name not in completion]
    return command


app = typer.Typer(
    name="voicehub",
    cls=PluginCommands,
    help="Train, evaluate and use speech models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib_metadata import version

        print(version("voicehub-core"))
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version."
    ),
) -> None:
    pass


# Presets and overrides come in any order after `train`; a `-x` among them is still an option.
app.command("train")(train.train)
app.command("launch")(launch.launch)
app.command("plan")(plan.plan)
app.command("eval")(eval_.evaluate)
app.command("transcribe")(transcribe.transcribe)
app.command("synthesize")(synthesize.synthesize)
app.command("sample")(sample.sample)
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(ema.app, name="ema")
app.add_typer(debug.app, name="debug")
app.command("presets")(presets_.presets)
app.command("plugins")(plugins_.plugins)
app.command("new-plugin")(new_plugin.new_plugin)
app.command("doctor")(doctor.doctor)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; everything is reported, nothing raised."""
    json_mode = "--json" in arguments
    try:
        result = app(args=list(arguments), prog_name="voicehub", standalone_mode=False)
    except _ParserError as error:
        error.show()  # type: ignore[attr-defined]
        usage = isinstance(error, _ParserUsageError)
        if arguments[0] == "train" and str(error).startswith("No such option"):
            print("A setting has no dashes: training.learning_rate=1e-3", file=sys.stderr)
        code = report_wrong_use(str(error) or "missing command", json_mode=json_mode)
        return code if usage else EXIT_FAILED
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted(json_mode)
    except SystemExit:
        raise
    except Exception as error:
        return report_failure(error, json_mode=json_mode)
    if not isinstance(result, int) or isinstance(result, bool):
        return EXIT_DONE
    if result == 130:  # typer's code for Ctrl-C
        return _interrupted(json_mode)
    return result if result in (EXIT_DONE, EXIT_WRONG_USE) else EXIT_FAILED


def _interrupted(json_mode: bool) -> int:
    print_error("interrupted")
    if json_mode:
        print_json_error(
            {"type": "Interrupted", "message": "interrupted", "exit_code": EXIT_FAILED}
        )
    return EXIT_FAILED


def main() -> NoReturn:
    """The console script."""
    # Threads of torch that wait for each other by spinning slow a busy machine down tenfold. The
    # variable counts only if it is set before torch loads; yours wins.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    survive_encodings()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":  # torchrun -m voicehub.cli.app
    main()

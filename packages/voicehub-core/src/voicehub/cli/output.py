"""How commands end: one last line of JSON with ``--json``, and errors without tracebacks.

Exit codes: 0 done, 1 failed, 2 wrong use. Commands of plugins call ``finish`` as ours do.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from voicehub.cli.processes import is_one_of_several, is_primary, rank
from voicehub.errors import ConfigurationError, VoiceHubError

EXIT_DONE, EXIT_FAILED, EXIT_WRONG_USE = 0, 1, 2

_RUN_DIRECTORY = "voicehub_run_directory"  # attribute set on an exception on its way up


class UsageError(ConfigurationError):
    """The command was asked for something that does not exist or makes no sense: exit code 2.

    ``problems`` are the same findings for a program to read; they go into the JSON error.
    """

    def __init__(self, message: str, *, problems: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Interrupted(VoiceHubError):
    """The user stopped the command; the message says how to go on."""


def jsonable(value: Any) -> Any:
    """``value`` in strict JSON types: paths as text, tuples as lists, NaN and infinity as text.

    Strict JSON has no NaN; a reader of the last line must not have to know Python's dialect.
    """
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [jsonable(item) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def survive_encodings() -> None:
    """Have standard output and error escape what their encoding cannot hold.

    A run must not end because a path, a transcript or a name has a letter that a terminal in
    Latin-1, or a pipe on Windows, cannot show.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def say(text: str = "", *, json_mode: bool = False) -> None:
    """Print for a person: on standard output, or on standard error when that is for JSON."""
    print(text, file=sys.stderr if json_mode else sys.stdout, flush=True)


def finish(
    result: Mapping[str, Any],
    *,
    json_mode: bool,
    human: str | None = None,
    ok: bool = True,
) -> None:
    """End a command: print ``human`` for a person, or ``result`` as the last line of JSON.

    Args:
        result: what the command found or made; ``"ok"`` is added in front.
        json_mode: whether ``--json`` was given.
        human: the text for a person; None where the command has already printed it.
        ok: False ends the command with exit code 1 ("it ran, and what it found is bad").

    Raises:
        typer.Exit: with code 1 when ``ok`` is false.
    """
    if json_mode:
        print(json.dumps({"ok": ok, **jsonable(result)}, allow_nan=False), flush=True)
    elif human:
        print(human, flush=True)
    if not ok:
        import typer

        raise typer.Exit(EXIT_FAILED)


def remember_run_directory(error: BaseException, directory: Path) -> None:
    """Have the traceback of ``error`` written into the run's own directory, should it get out."""
    setattr(error, _RUN_DIRECTORY, directory)


def report_failure(error: BaseException, *, json_mode: bool) -> int:
    """Tell the user about ``error`` on standard error (and as JSON) and return the exit code."""
    # An OSError without an errno did not come from the system: our code raised it with a message.
    own = isinstance(error, OSError) and error.errno is None
    known = own or isinstance(error, VoiceHubError)
    debug = os.environ.get("VOICEHUB_DEBUG") == "1"
    # ConfigurationError is how every layer says "this setting is wrong": that is wrong use.
    code = EXIT_WRONG_USE if isinstance(error, ConfigurationError) else EXIT_FAILED
    message = _message_of(error)
    details: dict[str, Any] = {"type": type(error).__name__, "message": message, "exit_code": code}
    if isinstance(error, UsageError) and error.problems:
        details["problems"] = error.problems
    if debug:
        traceback.print_exception(type(error), error, error.__traceback__)
    if not known:
        written = _write_traceback(error)
        details["traceback_file"] = str(written) if written else None
        where = f"The traceback is in {written}." if written else "It could not be written."
        message = f"{type(error).__name__}: {message}\n{where} VOICEHUB_DEBUG=1 prints it here."
    several = is_one_of_several()
    # Stopping is a joint act, of which one process tells.
    is_own = not getattr(error, "is_of_another_rank", False) and not isinstance(error, Interrupted)
    if is_own:
        _tell_launcher(f"{details['type']}: {details['message']}")
    elif (first := getattr(error, "failure", None)) is not None:
        # Of which the launcher may hear nothing else, if it ends that process meanwhile.
        _tell_launcher(f"{first.kind}: {first.text}", of_rank=first.rank)
    # What another process failed with is told by that one, and by the primary process.
    if is_own or not several or is_primary():
        print_error(f"rank {rank()}: {message}" if several else message)
    if json_mode and is_primary():
        print_json_error(details)
    return code


def report_wrong_use(message: str, *, json_mode: bool, kind: str = "UsageError") -> int:
    """As ``report_failure`` for what the argument parser itself refuses (already explained)."""
    if json_mode:
        print_json_error({"type": kind, "message": message, "exit_code": EXIT_WRONG_USE})
    return EXIT_WRONG_USE


def print_error(message: str) -> None:
    """One red ``Error:`` on a terminal, plain elsewhere; on standard error."""
    label = "Error:"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        label = f"\x1b[1;31m{label}\x1b[0m"
    print(f"{label} {message}", file=sys.stderr, flush=True)


def print_json_error(details: Mapping[str, Any]) -> None:
    """The last line of a failed command that was asked for JSON."""
    print(json.dumps({"ok": False, "error": jsonable(details)}, allow_nan=False), flush=True)


def _message_of(error: BaseException) -> str:
    # KeyError's own text is the repr of its argument: quotes around a whole sentence.
    if isinstance(error, KeyError) and len(error.args) == 1:
        return str(error.args[0])
    return str(error) or type(error).__name__


def _tell_launcher(message: str, of_rank: int | None = None) -> None:
    """Write why this process fails where torchrun looks for it, in torchrun's own form."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    now = str(int(datetime.now(timezone.utc).timestamp()))
    extra: dict[str, Any] = {"py_callstack": message, "timestamp": now}
    if of_rank is not None:
        extra["of_rank"] = of_rank
    with suppress(OSError):  # the launcher is gone: then nobody reads it
        Path(path).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


def _write_traceback(error: BaseException) -> Path | None:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    name = f"voicehub-traceback-{stamp}-{os.getpid()}.txt"
    for directory in (getattr(error, _RUN_DIRECTORY, None), Path(tempfile.gettempdir())):
        if directory is None:
            continue
        try:
            (directory / name).write_text("".join(lines), encoding="utf-8")
        except OSError:
            continue  # a full or read-only run directory: try the next place
        return Path(directory / name)
    return None

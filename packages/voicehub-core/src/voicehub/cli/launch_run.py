"""Run a plan's torchrun command on this node, and say which process failed first, and why."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from voicehub.cli.launch_plan import LaunchPlan
from voicehub.cli.output import Interrupted
from voicehub.errors import VoiceHubError

#: What torchrun says of a process that wrote nothing, such as one that was killed.
_NOTHING_WRITTEN = "<NONE>"
#: What a rank writes that has waited for another.
_WAITED = "RankStalledError:"
#: torchrun ends the other ranks with SIGTERM, and their own watches with exit code 1: these say
#: nothing about the cause.
_OF_OTHERS = (-signal.SIGTERM, 1)


class LaunchFailedError(VoiceHubError):
    """A process of a run failed, and with it all of them."""


def run_here(plan: LaunchPlan) -> None:
    """Start the processes of this node and wait for their end, as torchrun does.

    Raises:
        LaunchFailedError: one of them failed; names the first, and its cause.
        Interrupted: by a signal, which they were sent as well; says how to continue.
    """
    torchrun: Any = import_module("torch.distributed.run")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        torchrun.run(torchrun.parse_args(plan.torchrun()[1:]))
    except ChildFailedError as error:
        raise LaunchFailedError(_first_cause(error.failures)) from None
    except SignalException as error:
        # The first of them has said what is saved.
        raise Interrupted(
            f"interrupted by {error.sigval.name}. Continue with:\n  {_again(plan)}"
        ) from None


def _again(plan: LaunchPlan) -> str:
    """The command that goes on with the run of a plan."""
    if not any(item.startswith("resume=") for item in plan.overrides):
        plan = plan.with_override("resume=auto")
    options = [f"--nproc={plan.processes}"]
    if plan.nodes > 1:
        options += [f"--nnodes={plan.nodes}", f"--rdzv-endpoint={plan.endpoint}"]
    if plan.run_id is not None:
        options.append(f"--rdzv-id={plan.run_id}")
    if plan.max_restarts:
        options.append(f"--max-restarts={plan.max_restarts}")
    return shlex.join(["voicehub", "launch", *options, "--", *plan.words])


def _first_cause(failures: Mapping[int, Any]) -> str:
    """The process that failed by itself, not because another one had.

    A process that wrote its cause tells more than one that ended by a signal, and a rank that
    still writes its last words may get SIGTERM from torchrun because another ended sooner.
    """
    own = {r: f for r, f in failures.items() if _told(f) and _of_rank(f) is None and not _lost(f)}
    heard = [f for f in failures.values() if _of_rank(f) is not None]
    if heard and not own:  # it was ended before it wrote, and others knew why it failed
        first = _of_rank(heard[0])
        rest = [str(rank) for rank in sorted(failures) if rank != first]
        return (
            f"rank {first} failed first: {_told(heard[0])}. Ranks {', '.join(rest)} ended with it."
        )
    own = own or {rank: f for rank, f in failures.items() if _died(f)}
    rank, failure = min((own or failures).items(), key=lambda item: (item[1].timestamp, item[0]))
    if failure.exitcode < 0:
        ended = f"it was ended by {failure.signal_name()}"
    else:
        ended = f"it ended with exit code {failure.exitcode}"
    also = sorted(set(failures) - {rank})
    others = f" Ranks {', '.join(map(str, also))} ended with it." if also else ""
    return f"rank {rank} failed first: {_told(failure) or ended}.{others}"


def _lost(failure: Any) -> bool:
    """Whether all that the process has to tell is that another was gone."""
    told = _told(failure)
    return told.startswith(_WAITED) and "timed out" not in told


def _died(failure: Any) -> bool:
    """Whether it ended without a word, and neither torchrun nor its own watch ended it."""
    return not _told(failure) and failure.exitcode not in _OF_OTHERS


def _of_rank(failure: Any) -> int | None:
    """The rank whose failure the process has written down, where it is not its own."""
    data = failure.error_file_data
    message = data.get("message") if isinstance(data, dict) else None
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    found = extra.get("of_rank") if isinstance(extra, dict) else None
    return found if isinstance(found, int) else None


def _told(failure: Any) -> str:
    """What the process has written into torchrun's error file; empty where that is nothing."""
    data = failure.error_file_data
    message = data.get("message", "") if isinstance(data, dict) else ""
    if isinstance(message, dict):
        message = message.get("message", "")
    return "" if message == _NOTHING_WRITTEN else str(message).rstrip(".")

"""Run a plan's torchrun command on this node, and say which process failed first, and why."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from voicehub.cli.launch_plan import LaunchPlan
from voicehub.errors import VoiceHubError

# torchrun ends the other ranks with SIGTERM, so that signal says nothing about the cause.
_SIGNALS_OF_ITS_OWN = frozenset(signal.valid_signals()) - {signal.SIGTERM}


class LaunchFailedError(VoiceHubError):
    """A process of a run failed, and with it all of them."""


def run_here(plan: LaunchPlan) -> None:
    """Start the processes of this node and wait for their end, as torchrun does.

    Raises:
        LaunchFailedError: one of them failed; names the first, and its cause.
    """
    torchrun: Any = import_module("torch.distributed.run")
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        torchrun.run(torchrun.parse_args(plan.torchrun()[1:]))
    except ChildFailedError as error:
        raise LaunchFailedError(_first_cause(error.failures)) from None


def _first_cause(failures: Mapping[int, Any]) -> str:
    """The process that failed by itself, not because another one had.

    A process that wrote its cause tells more than one that ended by a signal, and a rank that
    still writes its last words may get SIGTERM from torchrun because another ended sooner.
    """
    own = {rank: f for rank, f in failures.items() if _told(f)}
    own = own or {rank: f for rank, f in failures.items() if -f.exitcode in _SIGNALS_OF_ITS_OWN}
    rank, failure = min((own or failures).items(), key=lambda item: (item[1].timestamp, item[0]))
    if failure.exitcode < 0:
        ended = f"it was ended by {failure.signal_name()}"
    else:
        ended = f"it ended with exit code {failure.exitcode}"
    also = sorted(set(failures) - {rank})
    others = f" Ranks {', '.join(map(str, also))} ended with it." if also else ""
    return f"rank {rank} failed first: {_told(failure) or ended}.{others}"


def _told(failure: Any) -> str:
    """What the process has written into torchrun's error file."""
    data = failure.error_file_data
    message = data.get("message", "") if isinstance(data, dict) else ""
    if isinstance(message, dict):
        message = message.get("message", "")
    return str(message).rstrip(".")

"""Reporters by name: callbacks of installed plugins, loaded only when the settings name them, and
kept from stopping a run."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.plugins import loading
from voicehub.plugins.groups import REPORTERS
from voicehub.suggest import did_you_mean
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.callbacks import EVENTS, TrainerCallback, overrides

logger = logging.getLogger(__name__)

HUB = "hub"  # uploads to a model hub; switched on by push_to_hub
GIVE_UP_AFTER = 5
_CLOSING = frozenset({"on_train_end", "on_train_error"})
# The package of a reporter, where it is not `voicehub-<name>`.
_PACKAGES = {HUB: "voicehub-hf"}

Alert = Callable[[str, str], None]


def make_reporters(args: TrainingArguments, alert: Alert) -> list[TrainerCallback]:
    """One callback for each reporter that the settings name.

    Args:
        args: ``report_to`` (``"all"``: every installed one), and ``push_to_hub``.
        alert: tells the user of a reporter that failed, by name and text.

    Raises:
        ConfigurationError: no installed distribution offers that reporter, or there are options
            for one that is not named.
        OptionalDependencyError: what the reporter reports to is not installed.
    """
    return [GuardedReporter(name, _make(name, args), alert) for name in _names(args)]


def check_reporters(args: TrainingArguments) -> None:
    """Raise what ``make_reporters`` would, before anything else of a run is built."""
    for name in _names(args):
        _make(name, args)


def check_reporters_known(args: TrainingArguments) -> None:
    """Raise where no installed distribution offers one of them; none is imported."""
    for name in _names(args):
        _check_known(name)


def _names(args: TrainingArguments) -> list[str]:
    names = list(dict.fromkeys(args.report_to))
    if "all" in names:
        names = [name for name in sorted(loading.names(REPORTERS)) if name != HUB]
    elif HUB in names:
        raise ConfigurationError("report_to: uploads to a hub are switched on by push_to_hub=True.")
    unread = sorted(args.reporter_options.keys() - set(names))
    if unread:
        raise ConfigurationError(
            f"reporter_options has settings of '{unread[0]}', which report_to does not name, so "
            f"nothing would read them. Add '{unread[0]}' to report_to, or remove them."
            f"{did_you_mean(unread[0], names)}"
        )
    return [*names, HUB] if args.push_to_hub else names


def _check_known(name: str) -> None:
    installed = loading.names(REPORTERS)
    if name not in installed:
        setting = "push_to_hub=True asks for" if name == HUB else "report_to names"
        raise ConfigurationError(
            f"{setting} '{name}', which no installed package offers (installed: "
            f"{', '.join(sorted(installed)) or 'none'}). Install "
            f"'{_PACKAGES.get(name, f'voicehub-{name}')}', or remove it."
            f"{did_you_mean(name, installed)}"
        )


def _make(name: str, args: TrainingArguments) -> TrainerCallback:
    _check_known(name)
    factory: Any = loading.load(REPORTERS, name)
    reporter = factory(args)
    if not callable(getattr(reporter, "on_train_begin", None)):
        raise TypeError(f"The reporter '{name}' must be a TrainerCallback, got {reporter!r}.")
    return reporter  # type: ignore[no-any-return]


class GuardedReporter(TrainerCallback):
    """Calls a reporter, and keeps its failures away from the run.

    The first failure is an alert, the later ones go to the debug log; after ``GIVE_UP_AFTER`` in
    a row only the events that close a run are still passed on. The state of a reporter is stored
    under its name and is no part of the resume signature: reporters may come and go.
    """

    def __init__(self, name: str, reporter: TrainerCallback, alert: Alert) -> None:
        self.name = name
        self.reporter = reporter
        self.state_name = f"reporter:{name}"
        self._alert = alert
        self._warned = False
        self._failures = 0
        for event in EVENTS:
            if overrides(reporter, event):
                setattr(self, event, functools.partial(self._pass_on, event))

    def _pass_on(self, event: str, *positional: Any, **context: Any) -> None:
        if self._failures >= GIVE_UP_AFTER and event not in _CLOSING:
            return
        try:
            getattr(self.reporter, event)(*positional, **context)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            self._tell(event, error)

    def _tell(self, where: str, error: Exception) -> None:
        if self._warned:
            logger.debug("The reporter '%s' failed at %s.", self.name, where, exc_info=error)
            return
        self._warned = True
        text = (
            f"the reporter '{self.name}' failed at {where} ({type(error).__name__}: {error}). "
            "Training goes on; later failures of it are shown in the debug log alone"
        )
        if where == "on_init_end":  # there is no run yet to have an alert in its metrics
            logger.warning("%s", text)
        else:
            self._alert("reporter-failed", text)

    def state_dict(self) -> dict[str, Any]:
        """State of the reporter; none where it has none, or fails to give JSON values."""
        method = getattr(self.reporter, "state_dict", None)
        if method is None:
            return {}
        try:
            return dict(json.loads(json.dumps(method(), allow_nan=False)))
        except Exception as error:
            self._tell("state_dict", error)
            return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give the reporter its state back."""
        if not state:
            return
        try:
            self.reporter.load_state_dict(state)  # type: ignore[attr-defined]
        except Exception as error:
            self._tell("load_state_dict", error)

"""What libraries log while a command runs, on standard error and clear of the live panel."""

from __future__ import annotations

import logging
import sys


class _CurrentStderr(logging.Handler):
    """Looks the stream up at each message: a live panel replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message; warnings say that they are."""
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        print(f"{prefix}{self.format(record)}", file=sys.stderr, flush=True)


def show_logs(*, quiet: bool = False) -> None:
    """Show what we and the plugins tell, and warnings of everybody else.

    Args:
        quiet: show errors alone, since another process tells the rest.
    """
    from voicehub.plugins.discovery import entry_points
    from voicehub.plugins.groups import PLUGIN_API

    root = logging.getLogger()
    if not any(isinstance(handler, _CurrentStderr) for handler in root.handlers):
        root.addHandler(_CurrentStderr())
    own = {"voicehub", *(entry.value for entry in entry_points(PLUGIN_API))}
    if quiet:
        root.setLevel(logging.ERROR)
    for name in own:
        logging.getLogger(name).setLevel(logging.ERROR if quiet else logging.INFO)

"""What an earlier run has left in a run directory, and that a new one does not replace unasked."""

from __future__ import annotations

from pathlib import Path

from voicehub.checkpoints.layout import list_checkpoints
from voicehub.cli.output import UsageError
from voicehub.models.artifact import FINAL_MODEL

#: What a run that ended leaves, in the order in which people look for it. ``metrics.jsonl`` is not
#: among them: a run that starts anew keeps it as ``metrics.previous.jsonl``.
RESULTS = (FINAL_MODEL, f"{FINAL_MODEL}-ema", "report.html")


def left_by_earlier_run(directory: Path) -> list[str]:
    """Names of what lies there: the newest complete checkpoint, then results."""
    checkpoints = [path.name for path in list_checkpoints(directory)[-1:]]
    return checkpoints + [name for name in RESULTS if (directory / name).exists()]


def refuse_to_replace(directory: Path) -> None:
    """Stop a run that starts anew where an earlier one has left something.

    Raises:
        UsageError: it names what lies there and the ways out.
    """
    left = left_by_earlier_run(directory)
    if not left:
        return
    *others, last = left
    named = f"{', '.join(others)} and {last}" if others else last
    if left[0] in RESULTS:
        # Nothing to continue from: resume=auto would only train anew.
        ways = "It kept no checkpoint to continue from. Choose"
    else:
        ways = "Continue it with resume=auto, choose"
    raise UsageError(
        f"{directory} holds {named} of an earlier run. {ways} another training.output_dir=PATH, "
        "or start anew with training.overwrite_output_dir=true, which deletes its checkpoints and "
        "replaces the rest."
    )

"""``voicehub doctor``: whether this machine and this installation can do their work."""

from __future__ import annotations

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish


def doctor(json_: JsonOption = False) -> None:
    """Check Python, packages, devices, audio decoding, disk space and plugins."""
    from voicehub.cli.health_checks import FAILED, WARNING, run_checks

    checks = run_checks()
    width = max(len(check.name) for check in checks)
    lines = [f"{check.state:<7}  {check.name:<{width}}  {check.detail}" for check in checks]
    failed = [check.name for check in checks if check.state == FAILED]
    warned = [check.name for check in checks if check.state == WARNING]
    lines.append("")
    if failed:
        lines.append(f"Not usable as it is: {', '.join(failed)}.")
    elif warned:
        lines.append(f"Usable; worth a look: {', '.join(warned)}.")
    else:
        lines.append("All is well.")
    result = {"checks": [check.as_dict() for check in checks]}
    finish(result, json_mode=json_, human="\n".join(lines), ok=not failed)

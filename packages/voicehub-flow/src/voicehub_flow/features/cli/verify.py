"""``voicehub features verify``: a whole store against its checksums."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish

_SHOWN = 20


def verify(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Directory of the store.")],
    json_: JsonOption = False,
) -> None:
    """Read every byte of STORE and name clips that are damaged or were exchanged.

    Ends with exit code 1 where there is one.
    """
    from voicehub_flow.store.verify import verify_store

    found = verify_store(store)
    result = {
        "store": store,
        "clips": found.clips,
        "tensors": found.tensors,
        "checksums": found.checked,
        "problems": [asdict(problem) for problem in found.problems],
    }
    lines = [f"{store}: {found.clips:,} clips"]
    lines += [f"  {name}: {shape}" for name, shape in found.tensors.items()]
    lines += [f"{problem.kind}: {problem.message}" for problem in found.problems[:_SHOWN]]
    if len(found.problems) > _SHOWN:
        lines.append(f"... and {len(found.problems) - _SHOWN:,} more")
    if not found.checked:
        lines.append(
            "no checksums: only numbers were looked at. `voicehub features index` adds checksums "
            "and ids."
        )
    elif not found.problems:
        lines.append("every clip is what was written")
    finish(result, json_mode=json_, human="\n".join(lines), ok=not found.problems)

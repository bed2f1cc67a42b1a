"""``voicehub data check``: find what is wrong with a corpus before training on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub.cli.tables import duration, table
from voicehub_data.cli.options import (
    ColumnMapOption,
    KindOption,
    RoleOption,
    SetOption,
    SourceArgument,
    WorkersOption,
    source_config,
    workers_or_default,
)
from voicehub_data.files import write_file

if TYPE_CHECKING:
    from voicehub_data.check import CheckReport


def check(
    source: SourceArgument,
    kind: KindOption = "auto",
    column_map: ColumnMapOption = None,
    set_: SetOption = None,
    role: RoleOption = "train",
    sample_rate: Annotated[
        int | None, typer.Option(min=1, help="Expected Hz; the most frequent one by default.")
    ] = None,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Fast: decode no samples.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    show: Annotated[int, typer.Option(min=0, help="Findings printed for each kind.")] = 3,
    report: Annotated[
        Path | None, typer.Option(help="Write every finding here, one JSON object a line.")
    ] = None,
    workers: WorkersOption = None,
    json_: JsonOption = False,
) -> None:
    """Look at every row and every audio file; exit code 1 where a row is unusable.

    Finds rows that cannot be read, missing, empty, damaged and cut-off files, headers and
    durations that lie, segments outside their file, NaN, clipping, silence, other sample rates,
    and duplicates of ids and of sound.
    """
    from voicehub_data.check import check_manifest
    from voicehub_data.cli.roles import as_role
    from voicehub_data.manifest import read_manifest

    config = source_config(source, kind, column_map, set_)
    manifest = read_manifest(config, role=as_role(role), strict=False)
    found = check_manifest(
        manifest,
        sample_rate=sample_rate,
        workers=workers_or_default(workers),
        decode=not headers_only,
    )
    if report is not None:
        _write_report(found, report)
    ok = found.num_rows > 0 and not found.errors and not (strict and found.warnings)
    result = {"source": manifest.path, "kind": manifest.kind, "digest": manifest.digest}
    finish({**result, **found.as_dict()}, json_mode=json_, human=_text(found, show), ok=ok)


def _text(report: CheckReport, show: int) -> str:
    how = "decoded" if report.decoded else "headers only"
    lines = [
        f"{report.num_rows:,} rows, {report.num_files:,} files ({how}); "
        f"{len(report.rows_ok):,} rows usable, {duration(report.seconds)}"
    ]
    if not report.num_rows:
        lines.append("error: the manifest is empty; expected at least one row.")
    if report.findings:
        severity = {item.kind: item.severity for item in report.findings}
        counts = [(severity[kind], kind, count) for kind, count in report.counts.items()]
        lines += ["", table(("", "finding", "rows"), sorted(counts)), ""]
    for kind, count in report.counts.items():
        examples = [item for item in report.findings if item.kind == kind][:show]
        lines += [f"{item.severity}: {item}" for item in examples]
        if show and count > show:
            lines.append(f"  ... and {count - show:,} more {kind} (--show, --report)")
    verdict = "No errors." if not report.errors and report.num_rows else "Not usable as it is."
    if report.warnings and not report.errors:
        verdict = "Usable; worth a look."
    return "\n".join([*lines, verdict])


def _write_report(report: CheckReport, path: Path) -> None:
    lines = [json.dumps(item.as_dict(), ensure_ascii=False) + "\n" for item in report.findings]
    write_file(path, "".join(lines).encode("utf-8"))

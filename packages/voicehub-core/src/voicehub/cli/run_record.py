"""``config.yaml`` and ``run.json``: what a run was, in enough detail to make it again.

No environment variables, and no value whose key looks like a credential.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from voicehub.cli.installed import installed_versions
from voicehub.cli.output import jsonable
from voicehub.errors import VoiceHubError

RECORD_FILE, CONFIG_FILE = "run.json", "config.yaml"
RECORD_FORMAT = 1

_CREDENTIAL = re.compile(r"(token|secret|passw(or)?d|api_?key|credential)s?$", re.IGNORECASE)
_HIDDEN = "(not recorded)"


def build_record(
    *,
    preset: str,
    overrides: Sequence[str],
    files: Sequence[Path],
    config: Mapping[str, Any],
    experiment: Mapping[str, Any],
    data: Sequence[Mapping[str, Any]] = (),
    stage: str | None = None,
    init_from: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of a run that starts now.

    Args:
        preset: its name.
        overrides: as typed.
        files: the YAML files that took part, the weakest first.
        config: the resolved configuration.
        experiment: what the family adds: digests of manifests, model revision, adapter's code.
        data: rows kept and dropped, by split.
        stage: name of the stage of a chain.
        init_from: path and digests of the weights that training starts from.
    """
    ours, libraries = installed_versions()
    return {
        "format": RECORD_FORMAT,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": ["voicehub", "train", preset, *(_hide_override(o) for o in overrides)],
        "working_directory": str(Path.cwd()),
        "preset": preset,
        "stage": stage,
        "init_from": jsonable(init_from),
        "files": [str(path) for path in files],
        "config": hide_credentials(config),
        "experiment": jsonable(experiment),
        "data": jsonable(data),
        "packages": ours,
        "libraries": libraries,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": _git_state(Path.cwd()),
    }


def prepare_run_directory(directory: Path) -> None:
    """Make the directory and make sure that it can be written.

    Raises:
        VoiceHubError: it cannot; the message says why and which setting names it.
    """
    probe = directory / f".voicehub-write-test-{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise VoiceHubError(
            f"The run directory {directory} cannot be written: {error.strerror or error}. "
            "Choose another with training.output_dir=PATH."
        ) from error


def write_record(
    directory: Path, record: Mapping[str, Any], config_yaml: str, resumed_step: int | None
) -> None:
    """Write both files. A resumed run keeps its first record and adds a session to it."""
    path = directory / RECORD_FILE
    session = {key: record[key] for key in ("started", "command", "packages", "libraries", "git")}
    session["resumed_from_step"] = resumed_step
    content: dict[str, Any] = {**record, "sessions": [session]}
    before = _read(path) if resumed_step is not None else None
    if before is not None:
        content = {**before, "sessions": [*before.get("sessions", []), session]}
    replace_file(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    replace_file(directory / CONFIG_FILE, config_yaml)


def recorded_start(directory: Path) -> dict[str, Any] | None:
    """``init_from`` of the run in ``directory``; None where it started from no artifact."""
    found = (_read(directory / RECORD_FILE) or {}).get("init_from")
    return found if isinstance(found, dict) else None


def config_as_yaml(config: Mapping[str, Any], header: str = "") -> str:
    """The resolved configuration as YAML that `voicehub train PATH.yaml` takes again."""
    from omegaconf import OmegaConf  # quotes what its own reader would take for a number

    body = OmegaConf.to_yaml(OmegaConf.create(dict(jsonable(config))))
    return "".join(f"# {line}\n" for line in header.splitlines()) + body


def code_digest(kind: type) -> dict[str, str]:
    """Qualified name of a class, and a digest over all Python files of its top-level package.

    SHA-256 over the sorted relative paths and contents: two runs with equal digests ran the same
    code of that package.
    """
    top = sys.modules[kind.__module__.split(".", 1)[0]]
    file = getattr(top, "__file__", None)
    files: list[Path] = []
    if file is not None and Path(file).name == "__init__.py":
        files = sorted(Path(file).parent.rglob("*.py"))
    elif file is not None:
        files = [Path(file)]
    digest = hashlib.sha256()
    for path in files:
        name = path.relative_to(Path(str(file)).parent).as_posix()
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "package": top.__name__,
        "sha256": digest.hexdigest(),
    }


def is_credential(key: str) -> bool:
    """Whether a setting of that name holds a token, password or the like."""
    return _CREDENTIAL.search(key) is not None


def hide_credentials(value: Any) -> Any:
    """``value`` with the values of keys that name credentials taken out."""
    if isinstance(value, Mapping):
        return {
            str(key): _HIDDEN if is_credential(str(key)) and item else hide_credentials(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [hide_credentials(item) for item in value]
    return jsonable(value)


def _hide_override(override: str) -> str:
    key, separator, _ = override.partition("=")
    return f"{key}={_HIDDEN}" if separator and is_credential(key) else override


def _git_state(directory: Path) -> dict[str, Any] | None:
    """Commit of the working directory and whether files differ from it; None outside of git."""
    try:
        commit = _git(directory, "rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(_git(directory, "status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=directory, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def replace_file(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)

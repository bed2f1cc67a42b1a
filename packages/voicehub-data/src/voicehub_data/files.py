"""Write a file in one step, so that no reader ever sees half of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from voicehub.errors import DataError


def write_file(path: Path, content: bytes) -> None:
    """Write beside the target and rename; folders are created, an existing file is replaced.

    Raises:
        DataError: it cannot be written; what was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise DataError(f"{path}: cannot be written ({error.strerror or error}).") from error

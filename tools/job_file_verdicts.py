"""What SkyPilot and dstack say of job files: ``python tools/job_file_verdicts.py FILE...``.

Runs where these two are installed (``nox -s job_files``) and prints one JSON object: for each file
null, or why its tool refuses it. ``*.skypilot.yaml`` goes to SkyPilot, ``*.dstack.yml`` to dstack.
SkyPilot keeps files below HOME: give it an empty one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def skypilot(path: Path) -> None:
    """As ``sky launch`` reads a task; no cloud is asked."""
    import sky
    from sky.catalog.common import get_catalog_path

    # What clouds offer is a list that SkyPilot fetches once; this one stands for it.
    offered = Path(get_catalog_path("common/accelerators.csv"))
    offered.parent.mkdir(parents=True, exist_ok=True)
    offered.write_text("AcceleratorName,Clouds\nH100,['aws']\nA100,['aws']\n", encoding="utf-8")
    sky.Task.from_yaml(str(path)).validate()


def dstack(path: Path) -> None:
    """As ``dstack apply`` reads a configuration; no server is asked."""
    import yaml
    from dstack._internal.core.models.configurations import parse_apply_configuration
    from dstack._internal.core.services import validate_dstack_resource_name

    task = parse_apply_configuration(yaml.safe_load(path.read_text(encoding="utf-8")))
    validate_dstack_resource_name(task.name)


READERS = {".skypilot.yaml": skypilot, ".dstack.yml": dstack}


def verdict(path: Path) -> str | None:
    """None if the tool takes the file, else what it says."""
    read = next(read for ending, read in READERS.items() if path.name.endswith(ending))
    try:
        read(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    print(json.dumps({path: verdict(Path(path)) for path in sys.argv[1:]}))

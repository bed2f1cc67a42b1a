"""The commands as a whole: what there is, and that listing it loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import json, sys
from voicehub_remote.commands import app
heavy = [name for name in ("torch", "hydra", "pydantic") if name in sys.modules]
ours = [name for name in sys.modules if name.startswith("voicehub_remote.")]
print(json.dumps([heavy, ours, [command.name for command in app.registered_commands]]))
"""


def test_listing_the_verbs_loads_none_of_their_work() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    heavy, ours, verbs = json.loads(ran.stdout)
    assert heavy == []
    light = ("voicehub_remote.verbs", "voicehub_remote.commands", "voicehub_remote.options")
    assert [name for name in ours if not name.startswith(light)] == []
    needed = {"deploy", "train", "attach", "logs", "checkpoint", "fetch", "stop", "up", "wait"}
    assert needed | {"status", "down", "machines"} == set(verbs)

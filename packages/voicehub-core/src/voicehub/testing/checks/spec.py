"""The declaration of a model type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from voicehub.plugins import loading
from voicehub.plugins.groups import TRAINING_SPECS
from voicehub.specs.registry import get_training_spec
from voicehub.testing.case import ConformanceCase

_LOAD = """
import sys
sys.path[:] = {path!r}
from voicehub.specs.registry import get_training_spec
get_training_spec({name!r})
heavy = [m for m in ("torch", "numpy", "tensorflow", "jax", "transformers") if m in sys.modules]
print(",".join(heavy))
"""


def spec(case: ConformanceCase, directory: Path) -> str:
    """The spec says what the case trains, and asking for it loads no tensor library (S1)."""
    found = get_training_spec(case.model_type)
    assert found.has_training_recipe, f"support is {found.support.value}: there is no recipe"
    built = case.build().spec
    assert built == found, (
        f"build() returns an adapter of another spec ({built.model_type!r}) than the registered one"
    )
    facts = f"{found.support.value}, phases {', '.join(found.phase_map)}"
    if found.model_type not in loading.names(TRAINING_SPECS):
        return f"{facts}; registered in this process alone"
    code = _LOAD.format(path=[entry for entry in sys.path if entry], name=found.model_type)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"get_training_spec() fails: {done.stderr.strip()[-500:]}"
    heavy = done.stdout.strip().splitlines()[-1:]
    assert heavy in ([], [""]), f"get_training_spec() imports {heavy[0]}; keep its module light"
    return facts

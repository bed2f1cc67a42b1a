"""What importing loads: nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["torch", "soundfile", "soxr", "jiwer", "datasets", "transformers", "hydra"]


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("voicehub_data", [*HEAVY, "numpy", "pydantic"]),
        ("voicehub_data.manifest", HEAVY),
        ("voicehub_data.check", HEAVY),
        ("voicehub_data.filters", HEAVY),
        ("voicehub_data.text", [*HEAVY, "pydantic"]),
        ("voicehub_data.metrics", HEAVY),
        ("voicehub_data.dataset", HEAVY),
        ("voicehub_data.cli.app", [*HEAVY, "pydantic"]),
    ],
)
def test_import_loads_no(module, forbidden):
    code = f"import {module}, sys; print(*[m for m in {forbidden} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.split() == []


def test_names_resolve_lazily():
    import voicehub_data

    for name in voicehub_data.__all__:
        assert getattr(voicehub_data, name) is not None
    assert set(voicehub_data.__all__) <= set(dir(voicehub_data))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = voicehub_data.nothing

"""The family holds what VoiceHub asks of every family."""

from pathlib import Path

import pytest
from voicehub.testing import CHECKS, run_check


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: str, tmp_path: Path) -> None:
    run_check("example-denoiser", check, tmp_path)

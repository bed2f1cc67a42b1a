"""The feature-store recipe holds what VoiceHub asks of every family."""

from __future__ import annotations

import pytest

from voicehub.testing import CHECKS, run_check
from voicehub_flow.multimodal.conformance import MMAudioCase


@pytest.fixture(scope="module")
def case():
    return MMAudioCase()


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(case, check, tmp_path):
    run_check(case, check, tmp_path)

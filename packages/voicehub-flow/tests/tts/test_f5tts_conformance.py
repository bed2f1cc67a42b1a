"""The text-to-speech recipe holds what VoiceHub asks of every family."""

from __future__ import annotations

import pytest

from voicehub.testing import CHECKS, run_check
from voicehub_flow.tts.conformance import F5TTSCase


@pytest.fixture(scope="module")
def case():
    return F5TTSCase()


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(case, check, tmp_path):
    run_check(case, check, tmp_path)

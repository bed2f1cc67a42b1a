"""Every layout holds what VoiceHub asks of every family."""

from __future__ import annotations

import pytest

from voicehub.testing import CHECKS, run_check
from voicehub_codec_lm.conformance import DelayCase, DepthCase, FlatCase
from voicehub_codec_lm.prepared_conformance import DiaCase, LlasaCase, OrpheusCase

CASES = [FlatCase, DelayCase, DepthCase, DiaCase, OrpheusCase, LlasaCase]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.model_type)
def case(request):
    return request.param()


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(case, check, tmp_path):
    run_check(case, check, tmp_path)

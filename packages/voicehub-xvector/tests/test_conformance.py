"""Every model type holds what VoiceHub asks of every family."""

from __future__ import annotations

import pytest

from voicehub.testing import CHECKS, run_check
from voicehub_xvector import conformance

CASES = [
    case
    for case in vars(conformance).values()
    if isinstance(case, type) and getattr(case, "model_type", "").startswith("xvector-")
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.model_type)
def case(request):
    return request.param()


def test_every_type_has_a_case():
    assert sorted(case.model_type for case in CASES) == [
        "xvector-hubert",
        "xvector-logmel",
        "xvector-wav2vec2",
        "xvector-wav2vec2-bert",
        "xvector-wavlm",
        "xvector-whisper",
    ]


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(case, check, tmp_path):
    run_check(case, check, tmp_path)

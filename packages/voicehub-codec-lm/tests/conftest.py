"""What the tests of this package share."""

from __future__ import annotations

import pytest

from voicehub_codec_lm.codecs import CorpusCodec
from voicehub_codec_lm.conformance import DelayCase, DepthCase, FlatCase, tone_codec

CASES = {case.model_type: case for case in (FlatCase, DelayCase, DepthCase)}


@pytest.fixture(scope="session")
def codec_directory(tmp_path_factory):
    """A corpus codec of tones on disk."""
    directory = tmp_path_factory.mktemp("codec")
    tone_codec().save(directory)
    return directory


@pytest.fixture(scope="session")
def codec(codec_directory):
    return CorpusCodec.load(codec_directory)


@pytest.fixture(scope="session", params=sorted(CASES))
def case(request):
    """Each layout's case in turn."""
    return CASES[request.param]()

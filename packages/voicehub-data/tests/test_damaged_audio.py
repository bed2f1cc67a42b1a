"""Whatever is in a file: a DataError or audio, and the check never raises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicehub.errors import DataError
from voicehub_data.audio import load_audio
from voicehub_data.check.findings import SEVERITIES
from voicehub_data.check.probe import probe_file

edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "insert"]),
        st.one_of(st.integers(0, 63), st.integers(0, 5000)),
        st.binary(min_size=1, max_size=40),
    ),
    max_size=6,
)


def damage(content: bytes, changes) -> bytes:
    out = bytearray(content)
    for how, position, data in changes:
        at = position % max(1, len(out))
        if how == "set":
            out[at : at + len(data)] = data
        elif how == "cut":
            del out[at : at + 10 * len(data)]
        else:
            out[at:at] = data
    return bytes(out)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=edits)
def test_damaged_files(write_audio, tmp_path, suffix, changes):
    source = tmp_path / f"source.{suffix}"
    if not source.exists():
        write_audio(source.name, 0.4)
    path = tmp_path / f"damaged.{suffix}"
    path.write_bytes(damage(source.read_bytes(), changes))
    probes = [probe_file(path, decode=decode) for decode in (True, False)]
    for probe in probes:
        assert probe.problem is None or probe.problem[0] in SEVERITIES
    try:
        audio = load_audio(path, sample_rate=16000)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert audio.dtype == np.float32
        assert audio.size
        assert np.isfinite(audio).all()

"""Whatever is in a manifest: rows, problems, or one of our errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import read_manifest

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
fields = st.sampled_from(["audio_filepath", "text", "duration", "offset", "id", "speaker", "x"])
records = st.dictionaries(fields, values, max_size=6).map(lambda r: json.dumps(r).encode())
lines = st.lists(st.one_of(records, st.binary(max_size=30)), max_size=6)


@SETTINGS
@given(lines)
def test_json_lines(tmp_path, content):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\n".join(content))
    try:
        manifest = read_manifest(path, strict=False)
    except DataError as error:
        assert str(path) in str(error)
        return
    filled = [line for raw in content for line in raw.split(b"\n") if line.strip()]
    if not path.read_bytes().startswith(b"\xef\xbb\xbf"):
        unread = [p for p in manifest.problems if p.kind != "duplicate-id"]
        assert len(manifest) + len(unread) == len(filled)


@SETTINGS
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("m.csv", b"audio_filepath,duration,text\n"),
        ("m.tsv", b"audio_filepath\tduration\ttext\n"),
        ("metadata.csv", b"a|b\n"),
        ("wav.scp", b"u1 a.wav\n"),
        ("segments", b"s1 u1 0 1\n"),
        ("text", b"u1 hello\n"),
    ],
)
@given(content=st.lists(st.binary(max_size=40), max_size=5))
def test_other_formats(tmp_path, name, head, content):
    if name in ("wav.scp", "segments", "text"):
        (tmp_path / "wav.scp").write_bytes(b"u1 a.wav\n")
        source = tmp_path
    else:
        (tmp_path / "wavs").mkdir(exist_ok=True)
        source = tmp_path / name
    (tmp_path / name).write_bytes(head + b"\n".join(content))
    try:
        manifest = read_manifest(source, strict=False)
    except (DataError, ConfigurationError) as error:
        assert str(tmp_path) in str(error)
    else:
        assert all(row.row >= 1 for row in manifest)
        assert all(str(problem.source).startswith(str(tmp_path)) for problem in manifest.problems)

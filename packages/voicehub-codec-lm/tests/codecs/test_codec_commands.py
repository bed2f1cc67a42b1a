"""``voicehub codec fit|encode|decode|eval``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from voicehub.cli.output import UsageError
from voicehub_codec_lm.cli.app import app
from voicehub_codec_lm.conformance import CODEC, RATE
from voicehub_data.synthetic.tones import write_tone_corpus


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write_tone_corpus(tmp_path_factory.mktemp("tones"), clips=8, rate=RATE)


def call(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def fitted(manifest, tmp_path_factory):
    out = tmp_path_factory.mktemp("codec") / "codec"
    settings = [part for key, value in CODEC.items() for part in ("--set", f"{key}={value}")]
    answer = call("fit", "--data", manifest, "--out", out, *settings)
    assert answer["recordings"] == 8 and answer["codebook_size"] == CODEC["codebook_size"]
    return out


def test_encode_fills_the_cache_once(fitted, manifest, tmp_path):
    arguments = ("encode", "--codec", fitted, "--data", manifest, "--cache", tmp_path)
    first, second = call(*arguments), call(*arguments)
    assert (first["encoded"], first["already_there"]) == (8, 0)
    assert (second["encoded"], second["already_there"]) == (0, 8)


def test_decode_writes_what_the_codec_leaves(fitted, manifest, tmp_path):
    from voicehub_data.config import DataSourceConfig
    from voicehub_data.manifest import read_manifest

    out = tmp_path / "decoded"
    assert call("decode", "--codec", fitted, "--data", manifest, "--out", out)["recordings"] == 8
    made = read_manifest(DataSourceConfig.load({"path": str(out / "manifest.jsonl")}))
    original = read_manifest(DataSourceConfig.load({"path": str(manifest)}))
    assert [row.text for row in made] == [row.text for row in original]
    from voicehub_data.audio import load_audio

    for row, source in zip(made, original, strict=True):
        length = len(load_audio(row.audio_filepath, sample_rate=RATE))
        assert abs(length - len(load_audio(source.audio_filepath, sample_rate=RATE))) <= 64


def test_eval_tells_distance_and_use(fitted, manifest):
    found = call("eval", "--codec", fitted, "--data", manifest, "--max-samples", 4)
    assert found["recordings"] == 4
    assert 0 < found["mel_cepstral_distance_db"] < 30
    for used, perplexity in zip(found["codes_used"], found["perplexity"], strict=True):
        assert 1 < used <= 8 and 1.0 <= perplexity <= used
    assert found["bits_per_second"] == pytest.approx(2 * 3 * RATE / 64)


def test_a_setting_that_is_not_there_names_the_nearest(manifest, tmp_path):
    with pytest.raises(UsageError, match="n_mel.*n_mels"):
        call("fit", "--data", manifest, "--out", tmp_path, "--set", "n_mel=3")

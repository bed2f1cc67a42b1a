"""Extraction: every row once, in order, whatever was interrupted, shared out or unreadable."""

from __future__ import annotations

import json

import killed_readers
import numpy as np
import pytest
import soundfile

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import read_manifest
from voicehub_data.shared_work import WorkerLostError
from voicehub_xvector.embeddings import read_embeddings
from voicehub_xvector.extract import ExtractionSettings, extract_embeddings, group
from voicehub_xvector.extract import run as run_module
from voicehub_xvector.extract.energy_vad import keep_speech
from voicehub_xvector.model import open_model

RATE = 16000
SECONDS = [0.5, 1.3, 0.7, 2.25, 0.9, 0.4, 1.0]


@pytest.fixture
def model(extractor):
    return extractor


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, write_corpus):
    return write_corpus(tmp_path_factory.mktemp("corpus"), SECONDS)


@pytest.fixture(autouse=True)
def groups_of_three(monkeypatch):
    monkeypatch.setattr(run_module, "GROUP_ROWS", 3)


def run(model, corpus, output, **options):
    options.setdefault("format_", "npz")
    return extract_embeddings(model, read_manifest(corpus), output, **options)


def test_all_rows_in_order_with_their_true_durations(model, corpus, tmp_path):
    summary = run(model, corpus, tmp_path)
    found = read_embeddings(tmp_path)
    assert found.ids == tuple(f"u{n}" for n in range(7)) and not summary.failures
    assert np.allclose(found.durations, SECONDS) and summary.seconds == pytest.approx(sum(SECONDS))
    assert set(found.speakers) <= {"ann", "bob", "cat", "dan"}
    embedder = open_model(model)
    for row, vector in zip(read_manifest(corpus), found.vectors, strict=True):
        audio, _ = soundfile.read(row.audio_filepath, dtype="float32")
        alone = embedder.embed([audio], RATE)[0].numpy()
        assert np.allclose(vector, alone, atol=1e-5)
    assert not (tmp_path / ".parts").exists() and not (tmp_path / "failed.jsonl").exists()


def test_other_rates_are_resampled_and_durations_stay(model, tmp_path, write_corpus):
    seconds = [1.0, 0.7301]
    low = write_corpus(tmp_path / "low", seconds, rate=8000)
    run(model, low, tmp_path / "out")
    found = read_embeddings(tmp_path / "out")
    exact = [len(soundfile.read(tmp_path / f"low/u{n}.wav")[0]) / 8000 for n in range(2)]
    assert found.durations.tolist() == exact


def test_segments_of_a_file_are_read_alone(model, corpus, tmp_path):
    path = corpus.with_name("segments.jsonl")
    row = {"audio_filepath": "u3.wav", "offset": 0.5, "duration": 1.0, "id": "middle"}
    path.write_text(json.dumps(row) + "\n")
    run(model, path, tmp_path)
    found = read_embeddings(tmp_path)
    audio, _ = soundfile.read(corpus.with_name("u3.wav"), dtype="float32")
    expected = open_model(model).embed([audio[RATE // 2 : 3 * RATE // 2]], RATE)[0].numpy()
    assert np.allclose(found.vectors[0], expected, atol=1e-5) and found.durations.tolist() == [1.0]


def test_long_recordings_are_the_weighted_mean_of_their_pieces(model, corpus, tmp_path):
    run(model, corpus, tmp_path, settings=ExtractionSettings(chunk_seconds=1.0))
    found = read_embeddings(tmp_path)
    audio, _ = soundfile.read(corpus.with_name("u3.wav"), dtype="float32")
    third = len(audio) // 3
    pieces = [audio[:third], audio[third : 2 * third], audio[2 * third :]]
    mean = open_model(model).embed(pieces, RATE).numpy().mean(0)
    assert np.allclose(found.vectors[3], mean, atol=1e-5)
    assert np.allclose(found.durations, SECONDS)


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(
    model, corpus, tmp_path, monkeypatch
):
    run(model, corpus, tmp_path / "whole")
    embed, calls = group.GroupEmbedder.embed, []

    def interrupted(self, rows, first, at):
        calls.append(first)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return embed(self, rows, first, at)

    monkeypatch.setattr(group.GroupEmbedder, "embed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(model, corpus, tmp_path / "broken")
    summary = run(model, corpus, tmp_path / "broken")
    assert summary.resumed == 3 and calls == [0, 3, 3, 6]
    whole, broken = (read_embeddings(tmp_path / name) for name in ("whole", "broken"))
    assert whole.ids == broken.ids and np.array_equal(whole.vectors, broken.vectors)


@pytest.mark.skipif(not killed_readers.POSSIBLE, reason="needs leases of Linux")
def test_a_killed_process_is_named_and_what_was_done_stays(model, corpus, tmp_path):
    run(model, corpus, tmp_path / "one")
    with (
        killed_readers.deadly(corpus.with_name("u6.wav"), worker=0),
        pytest.raises(WorkerLostError, match=r"SIGKILL .* at \S*u6\.wav \(.*row 7"),
    ):
        run(model, corpus, tmp_path / "two", processes=2)
    assert run(model, corpus, tmp_path / "two").resumed >= 3  # the first group of the killed one
    one, two = (read_embeddings(tmp_path / name) for name in ("one", "two"))
    assert one.ids == two.ids and np.allclose(one.vectors, two.vectors, atol=1e-6)


def test_rows_that_cannot_be_embedded_are_listed_and_tried_again(model, tmp_path, write_corpus):
    corpus = write_corpus(tmp_path / "corpus", SECONDS[:5])
    damaged = tmp_path / "corpus/u1.wav"
    good = damaged.read_bytes()
    damaged.write_bytes(b"RIFF")
    soundfile.write(tmp_path / "corpus/u4.wav", np.full(8000, np.nan), RATE, subtype="FLOAT")
    summary = run(model, corpus, tmp_path / "out")
    assert [failure.id for failure in summary.failures] == ["u1", "u4"]
    listed = [json.loads(row) for row in (tmp_path / "out/failed.jsonl").read_text().splitlines()]
    assert "not decodable" in listed[0]["reason"] and "row 2 (id 'u1')" in listed[0]["location"]
    assert "NaN or infinite" in listed[1]["reason"]
    assert read_embeddings(tmp_path / "out").ids == ("u0", "u2", "u3")
    damaged.write_bytes(good)
    again = run(model, corpus, tmp_path / "out")
    assert [failure.id for failure in again.failures] == ["u4"]
    assert read_embeddings(tmp_path / "out").ids == ("u0", "u1", "u2", "u3")


def test_one_bad_piece_does_not_fail_the_others(model, corpus, monkeypatch, tmp_path):
    from voicehub_xvector.embedder import XVectorModel

    embed = XVectorModel.embed

    def picky(self, waveforms, *arguments, **options):
        if any(len(wave) < 0.45 * RATE for wave in waveforms):
            raise DataError("too short for this model")
        return embed(self, waveforms, *arguments, **options)

    monkeypatch.setattr(XVectorModel, "embed", picky)
    summary = run(model, corpus, tmp_path)
    assert [(f.id, f.reason) for f in summary.failures] == [("u5", "too short for this model")]
    assert summary.embedded == 6


def test_silence_is_left_out_on_request_and_a_file_of_it_fails(model, tmp_path, write_corpus):
    corpus = write_corpus(tmp_path / "corpus", [1.0, 1.0])
    audio, _ = soundfile.read(tmp_path / "corpus/u0.wav", dtype="float32")
    padded = np.concatenate([np.zeros(RATE, np.float32), audio, np.zeros(RATE, np.float32)])
    soundfile.write(tmp_path / "corpus/u0.wav", padded, RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "corpus/u1.wav", np.zeros(RATE), RATE)
    summary = run(model, corpus, tmp_path / "out", settings=ExtractionSettings(energy_vad=True))
    assert [(f.id, f.reason) for f in summary.failures] == [("u1", "no speech found (energy_vad)")]
    assert summary.seconds == pytest.approx(3.0)
    assert summary.speech_seconds == pytest.approx(1.0, abs=0.1)
    alone = open_model(model).embed([keep_speech(padded, RATE)], RATE)[0].numpy()
    (vector,) = read_embeddings(tmp_path / "out").vectors
    assert np.allclose(vector, alone, atol=1e-5)


def test_parts_of_another_job_are_not_mixed_in(model, corpus, tmp_path, monkeypatch):
    def stop(self, rows, first, at):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(group.GroupEmbedder, "embed", stop)
        run(model, corpus, tmp_path)
    other = ExtractionSettings(chunk_seconds=5.0)
    with pytest.raises(DataError, match=r"another extraction \(other chunk_seconds\)"):
        run(model, corpus, tmp_path, settings=other)
    assert run(model, corpus, tmp_path, settings=other, restart=True).embedded == 7


def test_wrong_use_is_told_before_any_work(model, corpus, tmp_path):
    with pytest.raises(ConfigurationError, match="no such model directory"):
        run(tmp_path / "none", corpus, tmp_path)
    with pytest.raises(ConfigurationError, match="There is no format 'kaldi'"):
        run(model, corpus, tmp_path, format_="kaldi")
    with pytest.raises(ConfigurationError, match="processes must be >= 1"):
        run(model, corpus, tmp_path, processes=0)
    with pytest.raises(ConfigurationError, match=r"chunk_seconds must be >= 0.5"):
        ExtractionSettings(chunk_seconds=0.1)
    assert not (tmp_path / "embeddings.npz").exists()


def test_nothing_to_embed_is_an_error_with_the_first_reason(model, tmp_path, write_corpus):
    corpus = write_corpus(tmp_path / "corpus", [1.0])
    (tmp_path / "corpus/u0.wav").unlink()
    with pytest.raises(DataError, match="not one of 1 rows could be embedded.*no such audio file"):
        run(model, corpus, tmp_path / "out")


def test_damaged_parts_are_made_again(model, corpus, tmp_path, monkeypatch):
    run(model, corpus, tmp_path / "whole")
    embed = group.GroupEmbedder.embed

    def interrupted(self, rows, first, at):
        if first == 6:
            raise KeyboardInterrupt
        return embed(self, rows, first, at)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(group.GroupEmbedder, "embed", interrupted)
        run(model, corpus, tmp_path / "broken")
    first, second = sorted((tmp_path / "broken/.parts").glob("*.npz"))
    first.write_bytes(first.read_bytes()[:100])
    second.write_bytes(b"")
    assert run(model, corpus, tmp_path / "broken").resumed == 0
    whole, broken = (read_embeddings(tmp_path / name) for name in ("whole", "broken"))
    assert whole.ids == broken.ids and np.array_equal(whole.vectors, broken.vectors)


@pytest.mark.parametrize("content", ['{"mod', "[]"])
def test_a_damaged_record_of_the_job_is_told(model, corpus, tmp_path, content):
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts/job.json").write_text(content)
    with pytest.raises(DataError, match=r"job\.json: damaged.*--restart"):
        run(model, corpus, tmp_path)
    assert run(model, corpus, tmp_path, restart=True).embedded == 7

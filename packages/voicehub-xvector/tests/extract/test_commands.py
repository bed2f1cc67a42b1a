"""``voicehub extract`` and ``voicehub score`` from manifest to error rate."""

from __future__ import annotations

import json

import numpy as np
import pytest

from voicehub.cli.app import run
from voicehub_data.manifest import read_manifest
from voicehub_xvector.embeddings import FORMATS, EmbeddingTable, read_embeddings
from voicehub_xvector.embeddings.files import write_embeddings


def call(capsys, *arguments):
    code = run([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, extractor, write_corpus):
    folder = tmp_path_factory.mktemp("commands")
    manifest = read_manifest(write_corpus(folder / "corpus", [0.6] * 12))
    pairs = [(a, b) for a in manifest for b in manifest if a.id < b.id]
    lines = [f"{int(a.speaker == b.speaker)} {a.id}.wav corpus/{b.id}.wav" for a, b in pairs]
    (folder / "trials.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("name", FORMATS)
def test_extract_then_score(workplace, extractor, tmp_path, capsys, name):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    options = ("--model", extractor, "--format", name, "--device", "cpu")
    code, found = call(
        capsys, "extract", workplace / "corpus/manifest.jsonl", tmp_path / "out", *options
    )
    assert code == 0 and found["embedded"] == 12 and found["failed"] == 0
    trials = workplace / "trials.txt"
    if name == "ark,scp":  # keeps no paths: names must be ids
        trials = tmp_path / "ids.txt"
        trials.write_text((workplace / "trials.txt").read_text().replace("corpus/", ""))
    code, found = call(
        capsys, "score", trials, tmp_path / "out", "--scores", tmp_path / "s.txt",
        "--det", tmp_path / "det.svg",
    )  # fmt: skip
    assert code == 0 and found["trials"] == 66 and found["ok"]
    assert 0 <= found["metrics"]["eer"] <= 0.5 and len(found["metrics"]) == 5
    assert len((tmp_path / "s.txt").read_text().splitlines()) == 66
    assert (tmp_path / "det.svg").read_text().startswith("<svg")


def speakers(folder, seed, count, prefix):
    """Embeddings whose second half of dimensions is noise, far louder than the voices."""
    generator = np.random.default_rng(seed)
    voices = generator.normal(size=(count, 4)).repeat(6, axis=0)
    quiet, loud = 0.1 * generator.normal(size=(6 * count, 4)), generator.normal(size=(6 * count, 4))
    vectors = np.concatenate([voices + quiet, 3.0 * loud], axis=1).astype(np.float32)
    names = [f"{prefix}{n // 6}" for n in range(6 * count)]
    ids = [f"{prefix}{n // 6}-{n % 6}" for n in range(6 * count)]
    write_embeddings(EmbeddingTable.of(ids, vectors, speakers=names), folder, "npz")
    return folder


def test_plda_and_as_norm_learn_from_other_speakers(tmp_path, capsys):
    test, train = speakers(tmp_path / "a", 0, 12, "a"), speakers(tmp_path / "b", 1, 60, "b")
    cohort = speakers(tmp_path / "c", 2, 30, "c")
    table = read_embeddings(test)
    rows = [
        f"{int(table.speakers[a] == table.speakers[b])} {table.ids[a]} {table.ids[b]}"
        for a in range(72)
        for b in range(a)
    ]
    (tmp_path / "trials.txt").write_text("\n".join(rows))
    score = ("score", tmp_path / "trials.txt", test)
    plain = call(capsys, *score)[1]["metrics"]["eer"]
    plda = call(capsys, *score, "--backend", "plda", "--train", train)[1]["metrics"]["eer"]
    assert plda < 0.15 < 0.3 < plain
    code, found = call(
        capsys, *score, "--backend", "plda", "--train", train, "--cohort", cohort, "--top", "40"
    )
    assert code == 0 and found["metrics"]["eer"] < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "plda"), "needs --train"),
        (("--backend", "lda"), "cosine or plda"),
        (("--det", "x.svg"), "--det needs labels"),
    ],
)
def test_wrong_use_ends_with_code_2(tmp_path, capsys, options, message):
    test = speakers(tmp_path / "a", 0, 2, "a")
    (tmp_path / "t.txt").write_text("a0-0 a1-0\n")
    code, found = call(capsys, "score", tmp_path / "t.txt", test, *options)
    assert code == 2 and message in found["error"]["message"]


def test_a_row_that_fails_ends_with_code_1_and_is_named(extractor, write_corpus, tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus", [0.5, 0.5])
    (tmp_path / "corpus/u1.wav").write_bytes(b"")
    code = run(["extract", str(corpus), str(tmp_path / "out"), "--model", str(extractor)])
    said = capsys.readouterr().out
    assert code == 1 and "1 embeddings of 0 s of audio" in said
    assert "failed: " in said and "zero bytes" in said


@pytest.mark.parametrize("option", ["--train", "--cohort"])
@pytest.mark.parametrize("backend", ["cosine", "plda"])
def test_embeddings_of_another_model_are_told(tmp_path, capsys, option, backend):
    test = speakers(tmp_path / "a", 0, 2, "a")
    good = speakers(tmp_path / "b", 1, 9, "b")
    table = read_embeddings(good)
    other = EmbeddingTable.of(table.ids, table.vectors[:, :4], speakers=table.speakers)
    write_embeddings(other, tmp_path / "c", "npz")
    (tmp_path / "t.txt").write_text("a0-0 a1-0\n")
    with_train = () if option == "--train" else ("--train", good)
    code, found = call(
        capsys, "score", tmp_path / "t.txt", test, "--backend", backend, *with_train,
        option, tmp_path / "c",
    )  # fmt: skip
    assert code == 1 and f"{option}: " in found["error"]["message"]
    assert "embeddings of 4 values" in found["error"]["message"]

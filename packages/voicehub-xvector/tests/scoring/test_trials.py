"""Trial lists and the names in them."""

from __future__ import annotations

import numpy as np
import pytest

from voicehub.errors import DataError
from voicehub_xvector.embeddings import EmbeddingTable
from voicehub_xvector.scoring.trials import locate, read_trials

LIST = "1 id1/x/1.wav id1/y/1.wav\n0 id1/x/1.wav id2/z/1.wav\n\n1 id2/z/1.wav id2/z/1.wav\n"


def write(tmp_path, text):
    path = tmp_path / "trials.txt"
    path.write_text(text)
    return path


def test_a_list_in_the_voxceleb_format(tmp_path):
    trials = read_trials(write(tmp_path, LIST))
    assert trials.names == ("id1/x/1.wav", "id1/y/1.wav", "id2/z/1.wav")
    assert (trials.left.tolist(), trials.right.tolist()) == ([0, 0, 2], [1, 2, 2])
    assert trials.labels.tolist() == [1, 0, 1] and trials.rows.tolist() == [1, 2, 4]


def test_a_list_without_labels(tmp_path):
    trials = read_trials(write(tmp_path, "a.wav b.wav\r\nb.wav c.wav\r\n"))
    assert trials.labels is None and trials.names == ("a.wav", "b.wav", "c.wav")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a b\n2 a b\n", r"trials.txt, row 2: a label is 1 .* got '2'"),
        ("1 a b\n\n1 a\n", r"trials.txt, row 3: expected '1 a.wav b.wav' got '1 a'"),
        ("a b\n1 a b\n", r"trials.txt, row 2: expected 'a.wav b.wav', as in the first row"),
        ("1 a b c\n", r"trials.txt, row 1: expected"),
        ("\n", "is empty"),
    ],
)
def test_rows_that_are_no_trial_are_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_trials(write(tmp_path, text))


def table(ids, paths):
    return EmbeddingTable.of(ids, np.ones((len(ids), 2), np.float32), audio_filepaths=paths)


def test_names_are_ids_ids_with_a_suffix_or_ends_of_paths(tmp_path):
    trials = read_trials(write(tmp_path, "utt-1 utt-2.wav\nspk/a.flac other/a.flac\n"))
    rows = ["utt-2", "x", "utt-1", "y"]
    paths = ["", "/corpus/other/a.flac", "", "/corpus/spk/a.flac"]
    assert locate(trials, table(rows, paths), "set").tolist() == [2, 0, 3, 1]


def test_names_without_an_embedding_are_named_with_their_row(tmp_path):
    trials = read_trials(write(tmp_path, "1 a b\n0 a lost.wav\n0 a b.wav\n"))
    with pytest.raises(DataError, match=r"trials.txt, row 2: 'lost.wav' has no embedding in set"):
        locate(trials, table(["a", "b"], ["", ""]), "set")
    trials = read_trials(write(tmp_path, "1 a 1.wav\n"))
    with pytest.raises(DataError, match="row 1: '1.wav' is the end of 2 paths in set"):
        locate(trials, table(["a", "b"], ["/x/1.wav", "/y/1.wav"]), "set")

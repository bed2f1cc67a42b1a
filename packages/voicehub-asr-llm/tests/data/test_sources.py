"""Sources: what is kept, why the rest is not, what labels and prompts become of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_llm.config.sources import SourcesConfig, SpeechSourceConfig
from voicehub_asr_llm.data import sources as module
from voicehub_asr_llm.data.mixing import refuse_expanded_epochs
from voicehub_asr_llm.data.sources import read_eval_data, read_training_data, refuse_overlap
from voicehub_data.text.truecaser import Truecaser

RATE = 8000


def read(*train, **settings):
    config = SourcesConfig(train=list(train), workers=0, **settings)
    return read_training_data(config, sample_rate=RATE)


def bad(count, value=np.nan):
    """Samples with one that is no number, or none that is finite."""
    audio = np.full(count, 0.1, np.float32)
    audio[5] = value
    return audio


def test_durations_at_the_limits(corpus):
    samples = [6400, 6392, 152000, 152008, 8000]
    manifest = corpus("limits", [{"samples": count} for count in samples])
    data = read(manifest, max_drop_fraction=0.5)
    assert [row.id for row in data.rows] == ["limits-0", "limits-2", "limits-4"]
    (report,) = data.reports
    assert report.dropped == {"too_short": 1, "too_long": 1}
    assert (report.total, report.kept) == (5, 3)
    wider = read(manifest, min_seconds=0.799, max_seconds=19.001)
    assert len(wider.rows) == 5


def test_every_reason_is_counted(corpus):
    rows = [{}] * 12 + [
        {"text": ""},
        {"text": " [noise] <unk> ... "},
        {"text": "<unk> cut off"},
        {"text": "[laughter]"},
        {"audio": bad(8000)},
        {"audio": bad(8000, np.inf)},
        {"audio": b"no audio at all"},
        {"audio": b""},
        {"samples": 100},
        {"votes": 2},
    ]
    rule = {"column": "votes", "above": 1}
    source = {"path": corpus("mixed", rows), "exclude_where": [rule]}
    data = read(source, max_drop_fraction=0.5, check="decode")
    (report,) = data.reports
    assert report.dropped == {
        "excluded: votes above 1": 1,
        "non-finite": 2,
        "undecodable": 1,
        "empty-file": 1,
        "partly-transcribed": 1,
        "too_short": 1,
        "empty-text": 1,
        "empty-label": 2,
    }
    assert report.total == 22 == report.kept + sum(report.dropped.values())
    assert report.kept == len(data.rows) == data.sources[0].draws == 12
    assert "excluded: 1 rows, votes above 1" in report.notes


def test_over_the_limit_the_run_stops_with_a_table(corpus):
    manifest = corpus("short", [{}] * 4 + [{"samples": 800}] * 5 + [{"text": "[x]"}])
    with pytest.raises(DataError) as caught:
        read(manifest)
    message = str(caught.value)
    assert "6 of 10 rows would be dropped, over data.max_drop_fraction 0.2" in message
    assert "       5  too_short\n         1  empty-label" in message
    assert "data.min_seconds" in message
    assert len(read(manifest, max_drop_fraction=0.6).rows) == 4
    with pytest.raises(DataError, match="4 of 4 rows would be dropped"):
        read(corpus("none", [{"text": "[x]"}] * 4), max_drop_fraction=1.0)


def test_exclusions_do_not_count_towards_the_limit(corpus):
    manifest = corpus("votes", [{"votes": 0}] * 9 + [{"votes": 1}] * 30 + [{"text": "[x]"}])
    rule = {"column": "votes", "above": 0}
    data = read({"path": manifest, "exclude_where": [rule]}, max_drop_fraction=0.1)
    assert data.reports[0].kept == 9
    with pytest.raises(DataError, match="1 of 10 rows would be dropped"):
        read({"path": manifest, "exclude_where": [rule]}, max_drop_fraction=0.05)


def test_unexpected_errors_propagate(corpus, monkeypatch):
    def broken(text):
        raise KeyError("resource")

    monkeypatch.setattr(module, "normalize_label", broken)
    with pytest.raises(KeyError, match="resource"):
        read(corpus("plain", [{}]))


class TestLabels:
    @pytest.fixture
    def truecaser(self, tmp_path):
        path = tmp_path / "case.json"
        Truecaser({"anna": {"Anna": 3}, "i": {"I": 9}}).save(path)
        return str(path)

    def test_only_mono_sources_are_truecased(self, corpus, truecaser):
        texts = [{"text": "HE SAW ANNA <COMMA> I THINK"}, {"text": "anna's DOG"}]
        mono = {"path": corpus("mono", texts), "text_case": "mono"}
        cased = {"path": corpus("cased", texts), "text_case": "cased"}
        data = read(mono, cased, corpus("unsaid", texts), truecaser=truecaser)
        assert [row.text for row in data.rows] == [
            "He saw Anna, I think",
            "Anna's dog",
            "HE SAW ANNA, I THINK",
            "anna's DOG",
            "HE SAW ANNA, I THINK",
            "anna's DOG",
        ]
        assert "truecased: 2 labels (text_case: mono)" in data.reports[0].notes

    def test_a_source_that_looks_mono_is_noted_and_left(self, corpus):
        data = read(corpus("upper", [{"text": "HELLO THERE"}] * 3))
        assert any(
            "3 of 3 transcripts have letters of one case" in n for n in data.reports[0].notes
        )
        assert data.rows[0].text == "HELLO THERE"
        said = SpeechSourceConfig(path=corpus("said", [{"text": "HELLO THERE"}]), text_case="cased")
        assert not any("one case" in note for note in read(said).reports[0].notes)

    def test_punctuation_decides_the_prompt_and_is_never_added(self, corpus):
        marked = corpus("marked", [{"text": "Hello, there."}, {"text": "so it goes"}])
        plain = corpus("plain", [{"text": "hello there"}, {"text": "at 3.5 percent"}])
        data = read(marked, plain)
        assert [source.punctuated for source in data.sources] == [True, False]
        assert data.row_punctuated == [True, True, False, False]
        assert data.punctuated
        assert [row.text for row in data.rows] == [
            "Hello, there.",
            "so it goes",
            "hello there",
            "at 3.5 percent",
        ]
        assert not read(plain).punctuated

    def test_a_declaration_goes_before_what_is_found(self, corpus):
        marked = corpus("marked", [{"text": "Hello, there."}])
        assert not read({"path": marked, "text_punct": False}).punctuated
        plain = corpus("plain", [{"text": "hello there"}])
        with pytest.raises(
            ConfigurationError, match=r"text_punct is true, and none of its 1 labels"
        ):
            read({"path": plain, "text_punct": True})

    def test_truecaser_and_mono_belong_together(self, truecaser):
        with pytest.raises(ValueError, match="text_case: mono, and truecaser is not set"):
            SourcesConfig(train=[{"path": "a.jsonl", "text_case": "mono"}])
        with pytest.raises(ValueError, match="no train source is text_case: mono"):
            SourcesConfig(train=["a.jsonl"], truecaser=truecaser)


class TestSeveral:
    def test_ids_stay_unique_and_members_point_at_their_rows(self, corpus):
        one = corpus("one", [{"id": "a"}, {"id": "b"}])
        two = corpus("two", [{"id": "a"}, {"id": "c"}, {"id": "d"}])
        data = read(one, two)
        assert len({row.id for row in data.rows}) == 5
        assert data.ids == {"a", "b", "c", "d"}
        assert [list(rows) for rows in data.members] == [[0, 1], [2, 3, 4]]
        assert [source.name for source in data.sources] == ["train/one", "train/two"]

    def test_draws_are_counted_after_filtering(self, corpus):
        source = corpus("many", [{}] * 6 + [{"samples": 100}] * 4)
        settings = {"max_drop_fraction": 0.5}
        for wanted, expansion, draws in ((None, 1, 6), (4, 1, 4), (20, 1, 20), (4, 3, 12)):
            declared = {"path": source, "target_samples": wanted, "epoch_expansion": expansion}
            (read_source,) = read(declared, **settings).sources
            assert read_source.draws == draws
        notes = read({"path": source, "target_samples": 20}, **settings).reports[0].notes
        assert "mix: 20 draws of 6 rows, 100.0 % of an epoch; each row 3.3 times" in notes

    def test_expanded_epochs_and_several_of_them_are_refused(self):
        config = SourcesConfig(train=[{"path": "a.jsonl", "epoch_expansion": 2}])
        refuse_expanded_epochs(config, 1)
        with pytest.raises(ConfigurationError, match="both say how often"):
            refuse_expanded_epochs(config, 2)
        refuse_expanded_epochs(SourcesConfig(train=["a.jsonl"]), 5)

    def test_two_mistyped_settings(self):
        with pytest.raises(ValueError, match="target_sample"):
            SourcesConfig(train=[{"path": "a.jsonl", "target_sample": 5}])
        with pytest.raises(ValueError, match="min_seconds 3 is over max_seconds 2"):
            SourcesConfig(train=["a.jsonl"], min_seconds=3, max_seconds=2)


class TestEval:
    def test_nothing_is_filtered(self, corpus):
        rows = [{"samples": 100}, {"samples": 200000}, {"text": ""}, {"text": "A <COMMA> [x] B"}]
        manifest = corpus("eval", [*rows, {"audio": b"no audio"}, {}])
        config = SourcesConfig(train=["none.jsonl"], eval=manifest, workers=0)
        (split,) = read_eval_data(config, sample_rate=RATE)
        assert len(split.rows) == 5
        assert split.report.dropped == {"undecodable": 1}
        assert split.labels[3] == "A, B"
        assert split.rows[3].text == "A <COMMA> [x] B"

    def test_declarations_are_for_training_alone(self):
        with pytest.raises(ValueError, match="text_case"):
            SourcesConfig(train=["a.jsonl"], eval={"path": "b.jsonl", "text_case": "mono"})

    def test_rows_that_are_trained_on_are_refused(self, corpus):
        train = corpus("train", [{"id": "a"}, {"id": "b"}])
        for rows, refused in (([{"id": "b"}, {"id": "c"}], True), ([{"id": "c"}], False)):
            other = corpus(f"test{len(rows)}", rows)
            config = SourcesConfig(train=[train], eval=other, workers=0)
            training = read_training_data(config, sample_rate=RATE)
            splits = read_eval_data(config, sample_rate=RATE)
            if refused:
                with pytest.raises(DataError, match=r"'eval': 1 of 2 rows have the id .*\('b'\)"):
                    refuse_overlap(training, splits)
            else:
                refuse_overlap(training, splits)

    def test_the_same_recording_under_another_id_is_refused(self, corpus, tmp_path):
        train = corpus("train", [{"id": "a"}])
        for place, written in (("train", "0.wav"), (".", "train/../train/0.wav")):
            other = tmp_path / place / "other.jsonl"
            row = {"audio_filepath": written, "text": "x", "id": "z"}
            other.write_text(json.dumps(row) + "\n", encoding="utf-8")
            config = SourcesConfig(train=[train], eval=str(other), workers=0)
            training = read_training_data(config, sample_rate=RATE)
            with pytest.raises(DataError, match="'z'"):
                refuse_overlap(training, read_eval_data(config, sample_rate=RATE))

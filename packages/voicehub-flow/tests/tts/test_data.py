"""Draws of the objective, frames and their cache, durations, what cannot be trained on."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from voicehub.data.keyed_random import SampleKey
from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_data.manifest import ManifestRow
from voicehub_flow.config import F5TTSRunConfig, ObjectiveConfig
from voicehub_flow.mel import MelSettings
from voicehub_flow.text import Vocabulary
from voicehub_flow.tts.conformance import ARCHITECTURE, MEL
from voicehub_flow.tts.data import F5Collator, F5Item, MelReader
from voicehub_flow.tts.durations import Durations
from voicehub_flow.tts.experiment import build_experiment
from voicehub_flow.tts.scaling import MelScaling
from voicehub_flow.tts.voices import Voices, named_speakers


def item(number=0, frames=20, key=True):
    mel = torch.full((frames, 3), float(number))
    drawn = SampleKey(1, 0, number, number) if key else None
    return F5Item(f"u{number}", (1, 2), mel, 0, "ab", frames / 10, drawn)


def run_config(corpus, **model):
    sections = {"architecture": ARCHITECTURE, "mel": MEL, **model}
    data = {"train": str(corpus / "train.jsonl"), "eval": {"test": str(corpus / "test.jsonl")}}
    training = {"output_dir": "unused", "use_cpu": True}
    values = {"family": "flow", "model_type": "f5tts", "model": sections, "data": data}
    return F5TTSRunConfig.model_validate({**values, "training": training})


# -- draws -----------------------------------------------------------------------------------


def test_draws_depend_on_the_item_alone():
    collate = F5Collator(ObjectiveConfig())
    items = [item(number, 12 + number) for number in range(4)]
    whole = collate(items)
    for row, one in enumerate(items):
        alone = collate([one])
        for name in ("mel", "noise", "span_mask"):
            assert torch.equal(alone[name][0], whole[name][row, : len(one.mel)]), name
        for name in ("time", "drop_audio", "drop_text", "frame_lengths"):
            assert torch.equal(alone[name][0], whole[name][row]), name
    again = item(0)._replace(key=SampleKey(1, 1, 0, 0))
    assert not torch.equal(collate([item(0)])["noise"], collate([again])["noise"])


def test_spans_have_their_share_and_lie_anywhere():
    collate = F5Collator(ObjectiveConfig())
    drawn = [collate.draw(item(number, 100)) for number in range(400)]
    sizes = np.array([one.last - one.first for one in drawn])
    assert sizes.min() >= 70 and sizes.max() <= 100
    assert abs(sizes.mean() - 84.5) < 3 * 8.7 / 20
    assert min(one.first for one in drawn) == 0 and max(one.last for one in drawn) == 100
    assert 0.1 < np.mean([one.first > 10 for one in drawn]) < 0.5
    tiny = collate.draw(item(0, 1))
    assert (tiny.first, tiny.last) == (0, 1)


def test_conditions_are_dropped_in_training_alone():
    collate = F5Collator(ObjectiveConfig(audio_drop=0.5, joint_drop=0.5))
    drawn = [collate.draw(item(number, 3)) for number in range(300)]
    assert 0.4 < np.mean([one.drop_text for one in drawn]) < 0.6
    assert all(one.drop_audio for one in drawn if one.drop_text)
    seen = [collate.draw(item(number, 3, key=False)) for number in range(50)]
    assert not any(one.drop_audio or one.drop_text for one in seen)
    first, again = (collate.draw(item(7, 3, key=False)) for _ in range(2))
    assert first.time == again.time and torch.equal(first.noise, again.noise)
    assert seen[0].time != seen[1].time and not torch.equal(seen[0].noise, seen[1].noise)


def test_noise_is_standard_normal():
    noise = torch.cat([F5Collator(ObjectiveConfig()).draw(item(n, 50)).noise for n in range(60)])
    assert abs(float(noise.mean())) < 0.05 and abs(float(noise.std()) - 1) < 0.05


def test_an_empty_batch_is_refused():
    with pytest.raises(DataError, match="at least one"):
        F5Collator(ObjectiveConfig())([])


# -- frames ----------------------------------------------------------------------------------


def test_frames_are_kept_by_content_and_made_again_when_damaged(corpus, tmp_path):
    reader = MelReader(MelSettings.model_validate(MEL), tmp_path)
    row = ManifestRow("t0", corpus / "0.wav", "abcd")
    made = reader(row)
    (kept,) = tmp_path.iterdir()
    assert torch.equal(reader(row), made) and made.shape[1] == MEL["n_mels"]
    kept.write_bytes(b"nothing")
    assert torch.equal(reader(row), made)
    other = MelReader(MelSettings.model_validate({**MEL, "hop_length": 32}), tmp_path)
    assert len(other(row)) > len(made) and len(list(tmp_path.iterdir())) == 2
    reader(ManifestRow("t1", corpus / "1.wav", "abcd"))
    assert len(list(tmp_path.iterdir())) == 3


def test_scaling_is_undone():
    clips = [torch.randn(50, 3) * torch.tensor([1.0, 5.0, 0.0]) + 4 for _ in range(4)]
    scaling = MelScaling.of(clips)
    scaled = scaling.scaled(torch.cat(clips))
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    deviation = scaled.std(0, correction=0)
    torch.testing.assert_close(deviation, torch.tensor([1.0, 1.0, 0.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(scaling.restored(scaled), torch.cat(clips))
    assert MelScaling.from_dict(json.loads(json.dumps(scaling.to_dict()))) == scaling
    same = MelScaling()
    assert same.scaled(clips[0]) is clips[0] and MelScaling.from_dict(same.to_dict()) == same


# -- durations -------------------------------------------------------------------------------


def test_durations_of_known_words_are_found():
    seconds = {"one": 0.4, "seven": 0.8, "three": 0.5}
    paces = {"fast": 0.8, "slow": 1.2}
    rows = [(w, s * p, who) for w, s in seconds.items() for who, p in paces.items()] * 60
    texts, lasting, speakers = zip(*rows, strict=True)
    fitted = Durations.fit(texts, lasting, speakers)
    for word, second in seconds.items():
        for who, pace in paces.items():
            assert fitted.seconds(word, who) == pytest.approx(second * pace, rel=0.03)
        assert fitted.seconds(word) == pytest.approx(second, rel=0.03)
    assert Durations.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def test_the_fit_is_the_ridge_regression_whatever_the_size_of_its_pieces(monkeypatch):
    generator = np.random.default_rng(4)
    texts = ["".join(generator.choice(list("abcd"), generator.integers(1, 9))) for _ in range(30)]
    lasting = generator.uniform(0.2, 2.0, 30)
    counts = np.array([[text.count(symbol) for symbol in "abcd"] for text in texts], float)
    design = np.column_stack((counts.sum(1), np.ones(30), counts))
    normal = design.T @ design + np.diag([1e-6, 1e-3, 2.0, 2.0, 2.0, 2.0])
    rate, constant, *apart = np.linalg.solve(normal, design.T @ lasting)
    for size in (7, 2048):
        monkeypatch.setattr("voicehub_flow.tts.durations._CHUNK", size)
        fitted = Durations.fit(texts, lasting.tolist(), [None] * 30)
        expected = {symbol: rate + more for symbol, more in zip("abcd", apart, strict=True)}
        assert fitted.symbols == pytest.approx(expected, rel=1e-9)
        assert (fitted.other, fitted.constant) == pytest.approx((rate, constant), rel=1e-9)
        assert not fitted.paces
        nothing = Durations.fit(["", ""], [1.0, 2.0], [None, None])
        assert nothing.seconds("") == pytest.approx(1.5, rel=1e-2)


def test_rare_symbols_last_as_the_others_do():
    generator = np.random.default_rng(2)
    texts = ["".join(generator.choice(list("abcde"), generator.integers(4, 30))) for _ in range(80)]
    lasting = [0.2 + 0.07 * len(text) for text in texts]
    fitted = Durations.fit([*texts, "q"], [*lasting, 1.5], [None] * 81)
    assert fitted.seconds("abcabcabcabc") == pytest.approx(0.2 + 0.84, rel=0.1)
    assert 0 < fitted.seconds("zzzz") < 4


# -- text and speakers -------------------------------------------------------------------------


def test_a_vocabulary_goes_to_disk_and_back(tmp_path):
    vocabulary = Vocabulary([" ", "a", "ang1", "é"])
    vocabulary.save(tmp_path)
    again = Vocabulary.read(tmp_path / "vocab.txt")
    assert again.symbols == vocabulary.symbols and again.fingerprint() == vocabulary.fingerprint()
    encoded = again.encode("a éa?")
    assert encoded.ids == (2, 1, 4, 2) and encoded.unknown == {"?": 1}
    grown = again.extended("?!a")
    assert grown.symbols == (" ", "a", "ang1", "é", "!", "?")
    with pytest.raises(DataError, match="no character"):
        again.require("? ?", "here")


@pytest.mark.parametrize(
    "text, said", [("a\nb\na\n", "line 3"), ("a\n\nb\n", "line 2"), ("", "no symbol")]
)
def test_a_damaged_vocabulary_is_refused(tmp_path, text, said):
    (tmp_path / "vocab.txt").write_text(text)
    with pytest.raises(CheckpointError, match=said):
        Vocabulary.read(tmp_path / "vocab.txt")


def test_speakers_have_rows_behind_nobody():
    voices = Voices(("anna", "bert"))
    assert voices.row("bert", "x") == 2 and voices.row(0, "x") == 1 and voices.name(2) == "bert"
    assert Voices().row(None, "x") == 0 and voices.extended(["carl", "anna"]).names[2] == "carl"
    with pytest.raises(ConfigurationError, match="Did you mean 'anna'"):
        voices.row("ana", "x")
    with pytest.raises(ConfigurationError, match="name one of anna, bert"):
        voices.row(None, "x")
    with pytest.raises(ConfigurationError, match="prompt_audio"):
        Voices().row("anna", "x")
    rows = [SimpleNamespace(speaker=s, location=f"row {s}") for s in ("b", "a", None)]
    assert named_speakers(rows[:2], "auto") == ("a", "b")
    assert named_speakers(rows[:1], "auto") == () and named_speakers(rows, "never") == ()
    with pytest.raises(DataError, match="names no speaker"):
        named_speakers(rows, "auto")


# -- preflight ---------------------------------------------------------------------------------


def test_an_experiment_says_what_it_will_train_on(corpus):
    built = build_experiment(run_config(corpus, normalize="corpus"))
    report = built.data_report[0]
    assert (report.total, report.kept) == (6, 6)
    assert "vocabulary: 4 symbols; speakers: 2" in report.notes
    assert built.model.vocabulary.symbols == ("a", "b", "c", "d")
    assert built.model.scaling.mean is not None and built.model.model is None
    assert "--text abcd --speaker bert" in built.next_command(corpus)
    assert [note.key for note in built.figure_notes] == ["loss"]
    assert built.model.durations.seconds("abcd", "anna") == pytest.approx(4 * 0.064, rel=0.05)


def test_rows_that_cannot_be_trained_on_are_named(corpus, tmp_path):
    rows = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["audio_filepath"] = str(corpus / row["audio_filepath"])
    rows[0]["text"] = "abcd" * 40
    manifest = tmp_path / "train.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = run_config(corpus)
    config.data.max_drop_fraction = 0.5
    config.data.train[0].path = str(manifest)
    report = build_experiment(config).data_report[0]
    assert report.dropped == {"text-longer-than-audio": 1} and report.kept == 5
    config.data.max_drop_fraction = 0.1
    with pytest.raises(DataError, match="160 characters do not fit into"):
        build_experiment(config)


@pytest.mark.parametrize(
    "model, said",
    [
        ({"text": {"kind": "checkpoint"}}, "needs a path"),
        ({"path": "somewhere"}, "would reset the text embedding"),
        ({"path": "p", "text": {"kind": "checkpoint"}, "normalize": "corpus"}, "normalize"),
        ({"objective": {"infill_min": 0.9, "infill_max": 0.8}}, "infill_min"),
        ({"architecture": {**ARCHITECTURE, "heads": 3}}, "heads"),
        ({"vocoder": {"name": "vocos"}}, "needs path"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(corpus, model, said):
    with pytest.raises(ValueError, match=said):
        run_config(corpus, **model)

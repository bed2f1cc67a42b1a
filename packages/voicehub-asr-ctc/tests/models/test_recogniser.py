"""Transcribing: files, arrays, long recordings; failures are counted apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.model import LogMelCTC
from voicehub_asr_ctc.recogniser import Decoder
from voicehub_asr_ctc.tokenizers import CharacterTokenizer

CONFIG = LogMelModelConfig(
    n_mels=20, hidden_size=16, num_blocks=2, num_heads=2, kernel_size=3, attention_every=0
)
TOKENIZER = CharacterTokenizer.from_characters("abcd")


@pytest.fixture
def model():
    torch.manual_seed(1)
    wrapper = LogMelCTC.from_config(CONFIG, TOKENIZER).load()
    with torch.no_grad():
        wrapper.model.head.weight.mul_(3.0)
    return wrapper


def noise(samples, seed=0):
    return np.random.default_rng(seed).standard_normal(samples).astype(np.float32) * 0.1


def test_batches_do_not_change_the_text(model):
    waves = [noise(samples, samples) for samples in (4000, 12000, 7777, 16000, 333)]
    alone = [model.transcribe([wave])[0].text for wave in waves]
    together = model.transcribe(waves, batch_size=3)
    assert [item.text for item in together] == alone
    assert [item.id for item in together] == [f"audio-{i}" for i in range(5)]
    assert together[0].duration == 4000 / 16000
    assert len(set(alone)) > 1


def test_windows_of_a_long_recording_join_to_the_whole(model, monkeypatch):
    """With features that look at one frame alone, chunks must give the very same scores."""
    front_end = model.front_end
    prepare = type(front_end)._prepare

    def without_statistics(self, audio):
        item = prepare(self, audio)
        return item._replace(rows=torch.tanh(self.log_mel(torch.from_numpy(audio.copy()))))

    monkeypatch.setattr(type(front_end), "_prepare", without_statistics)
    wave = noise(5 * 16000)
    whole = model.log_probs([wave], chunk_seconds=10)[0]
    cut = model.log_probs([wave], chunk_seconds=1.3, overlap_seconds=0.4)[0]
    assert whole.shape == cut.shape
    np.testing.assert_allclose(cut, whole, atol=1e-4)


def test_a_long_recording_has_all_its_frames(model):
    wave = noise(7 * 16000 + 123)
    cut = model.log_probs([wave], chunk_seconds=2, overlap_seconds=0.5)[0]
    assert len(cut) == model.front_end.frames(len(wave))


def test_word_times_are_ordered_and_within_the_recording(model):
    result = model.transcribe([noise(32000, 5)], timestamps=True)[0]
    assert " ".join(word.word for word in result.words) == " ".join(result.text.split())
    times = [t for word in result.words for t in (word.start, word.end)]
    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] <= 2.0 + model.front_end.frame_seconds


def test_beams_give_texts_and_times_too(model):
    wave = noise(8000, 2)
    plain = model.transcribe([wave], beam_size=8)[0]
    timed = model.transcribe([wave], beam_size=8, timestamps=True)[0]
    assert plain.text == timed.text and plain.words is None
    assert " ".join(w.word for w in timed.words) == " ".join(timed.text.split())


def test_a_language_model_steers_the_beam(model):
    class NoB:
        """The word b is worth little."""

        def initial_state(self):
            return ()

        def score(self, state, word):
            return (-5.0 if word == "b" else 0.0), state

        def finish(self, state):
            return 0.0

    probabilities = np.full((3, len(TOKENIZER)), 1e-4)
    probabilities[0, 0] = probabilities[2, 0] = 1.0
    probabilities[1, TOKENIZER.encode("b").ids[0]] = 0.6
    probabilities[1, TOKENIZER.encode("a").ids[0]] = 0.4
    scores = np.log(probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)
    assert Decoder(model, 4, {}).decode(scores)[0] == "b"
    assert Decoder(model, 4, {"language_model": NoB(), "alpha": 1.0}).decode(scores)[0] == "a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 3}, "unknown decoding option 'beam'"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"language_model": object()}, "more with a language model"),
    ],
)
def test_wrong_options_are_refused(model, options, message):
    with pytest.raises(ConfigurationError, match=message):
        model.transcribe([noise(4000)], **options)


@pytest.mark.parametrize("wave", [np.zeros((2, 5)), np.zeros(0), np.array([0.0, np.nan])])
def test_wrong_arrays_are_refused(model, wave):
    with pytest.raises(DataError, match="expected finite mono samples"):
        model.transcribe([wave])


def test_weights_load_when_they_are_first_needed():
    lazy = LogMelCTC.from_config(CONFIG, TOKENIZER)
    assert not lazy.is_loaded
    (result,) = lazy.transcribe([noise(4000)])
    assert lazy.is_loaded and isinstance(result.text, str)


def test_transcribing_leaves_modes_and_random_state_alone(model):
    model.model.train()
    model.model.blocks[0].eval()
    before = torch.random.get_rng_state()
    model.transcribe([noise(4000)])
    assert model.model.training and not model.model.blocks[0].training
    assert model.model.blocks[1].training
    assert torch.equal(torch.random.get_rng_state(), before)


def test_failures_are_counted_apart(model, tone_corpus, tmp_path):
    source = tone_corpus(6)
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    for row in rows:
        row["audio_filepath"] = str(source.parent / row["audio_filepath"])
    (tmp_path / "empty.wav").write_bytes(b"")
    rows[2]["audio_filepath"] = str(tmp_path / "empty.wav")
    rows[4]["audio_filepath"] = str(tmp_path / "missing.wav")
    path = tmp_path / "eval.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    report = model.evaluate(path, batch_size=2)
    assert report.dropped == {"invalid-row": 1, "unreadable-audio": 2}
    assert len(report.notes) == 3 and "row 7: not JSON" in report.notes[0]
    assert {note.rsplit(".wav", 1)[0].rsplit("/", 1)[1] for note in report.notes[1:]} == {
        "empty",
        "missing",
    }
    assert [row.id for row in report.rows] == [rows[i]["id"] for i in (0, 1, 3, 5)]
    errors = sum(row.errors for row in report.rows)
    words = sum(row.words for row in report.rows)
    assert report.metrics["wer"] == pytest.approx(errors / words)
    assert {"cer", "empty_share", "blank_share"} <= report.metrics.keys()
    assert len(model.evaluate(path, max_samples=2).rows) == 2


def test_an_artifact_gives_the_same_text(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = LogMelCTC.from_pretrained(tmp_path, lazy_load=False)
    wave = noise(16000, 9)
    assert loaded.transcribe([wave])[0].text == model.transcribe([wave])[0].text
    assert loaded.artifact_config() == model.artifact_config()


def test_weights_of_another_size_are_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["config"]["hidden_size"] = 32
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="does not fit the model that is described"):
        LogMelCTC.from_pretrained(tmp_path, lazy_load=False)

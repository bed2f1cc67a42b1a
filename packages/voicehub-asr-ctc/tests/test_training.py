"""Whole runs: learning, not learning, resuming, and what is left of a run."""

from __future__ import annotations

import json
import random

import pytest
import torch

from voicehub.errors import CheckpointMismatchError
from voicehub.models.auto import AutoModelForSpeechRecognition
from voicehub_data.manifest import read_manifest

LEARNING = {"num_train_epochs": 12, "warmup_ratio": 0.1, "adam_beta2": 0.98, "max_grad_norm": 5.0}


def shuffled(path, folder):
    """The same clips with each other's transcripts."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [row["text"] for row in rows]
    random.Random(0).shuffle(texts)
    for row, text in zip(rows, texts, strict=True):
        row["text"] = text
        row["audio_filepath"] = str(path.parent / row["audio_filepath"])
    out = folder / "shuffled.jsonl"
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


@pytest.fixture(scope="module")
def learnt(tone_corpus, tmp_path_factory, trainer_of, log_mel_values):
    """A short run that learns to read tones, and its final model."""
    folder = tmp_path_factory.mktemp("learnt")
    unseen = tone_corpus(30, seed=9, name="unseen")
    values = log_mel_values(tone_corpus(240), unseen, folder, **LEARNING)
    trainer = trainer_of(values)
    trainer.train()
    metrics = trainer.evaluate()
    return trainer, metrics, trainer.save_model()


def test_tones_are_learnt(learnt):
    _, metrics, _ = learnt
    assert metrics["eval_wer"] < 0.05
    assert metrics["eval_empty_share"] == 0


def test_shuffled_transcripts_are_not(tone_corpus, log_mel_run, trainer_of, tmp_path):
    path = shuffled(tone_corpus(240), tmp_path)
    values = log_mel_run(path, tone_corpus(30, seed=9, name="unseen"), **LEARNING)
    trainer = trainer_of(values)
    trainer.train()
    assert trainer.evaluate()["eval_wer"] > 0.8


def test_the_final_model_transcribes_alike(learnt, tone_corpus):
    trainer, metrics, directory = learnt
    model = AutoModelForSpeechRecognition.from_pretrained(directory, lazy_load=False)
    path = tone_corpus(30, seed=9, name="unseen")
    report = model.evaluate(path)
    assert report.metrics["wer"] == pytest.approx(metrics["eval_wer"], abs=1e-9)
    rows = read_manifest(path).rows
    assert len(report.rows) == len(rows) and report.dropped == {}
    shown = trainer.experiment.predict(5)
    assert [row.id for row in shown] == [rows[i].id for i in (0, 6, 12, 18, 24)]
    assert trainer.experiment.audio_bytes(shown[0])[:4] == b"RIFF"


def test_words_lie_where_they_are_spoken(learnt, spoken):
    _, _, directory = learnt
    model = AutoModelForSpeechRecognition.from_pretrained(directory, lazy_load=False)
    result = model.transcribe([spoken("ab cd")], timestamps=True)[0]
    assert result.text == "ab cd"
    # Silences of 0.24 s around and between two pairs of tones of 0.12 s.
    first, second = result.words
    assert 0.15 < first.start < first.end < 0.6
    assert 0.6 < second.start < second.end < 1.1


def test_training_goes_on_from_an_artifact(learnt, tone_corpus, log_mel_run, trainer_of):
    _, metrics, directory = learnt
    unseen = tone_corpus(30, seed=9, name="unseen")
    values = log_mel_run(tone_corpus(16), unseen, max_steps=1, learning_rate=0.0)
    values["init_from"], values["model"] = str(directory), {}
    trainer = trainer_of(values)
    trainer.train()
    assert trainer.evaluate()["eval_wer"] == pytest.approx(metrics["eval_wer"])
    values["model"]["hidden_size"] = 64
    with pytest.raises(ValueError, match=r"the run sets others: model\.hidden_size"):
        trainer_of(values)


AUGMENTED = {
    "augment": {
        "speed": {"factors": [0.9, 1.1]},
        "gain": {"decibels": [-3, 3]},
        "spec_augment": {"time_mask_frames": 10},
    }
}


def augmented(values, tone_corpus):
    values["data"].update(AUGMENTED)
    values["data"]["batches"] = {"max_padded_seconds": 6.0, "num_buckets": 3}
    values["model"]["dropout"] = 0.1
    return values


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_is_the_same_run(tone_corpus, log_mel_run, trainer_of, tmp_path, workers):
    """Stopped in the middle of an epoch, augmentation and dropout on."""
    path = tone_corpus(24)
    runs = {}
    for name, stop in (("whole", None), ("cut", 7)):
        values = log_mel_run(path, max_steps=12, save_strategy="steps", save_steps=7)
        values["training"]["output_dir"] = str(tmp_path / name)
        values["training"]["dataloader_num_workers"] = 0 if stop is None else workers
        augmented(values, tone_corpus)
        trainer = trainer_of(values)
        if stop is not None:
            trainer.train()
            last = tmp_path / name / "checkpoint-12"
            for file in sorted(last.rglob("*"), reverse=True):
                file.unlink() if file.is_file() else file.rmdir()
            last.rmdir()
            trainer = trainer_of(values)
            trainer.train(resume_from_checkpoint=True)
        else:
            trainer.train()
        logged = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        runs[name] = (trainer.adapter.state_dict(), logged)
    assert runs["whole"][1] == runs["cut"][1]
    for key, tensor in runs["whole"][0].items():
        assert torch.equal(tensor, runs["cut"][0][key]), key


def test_another_path_of_the_loss_is_another_run(tone_corpus, log_mel_run, trainer_of, monkeypatch):
    """Paths round differently: a machine without a compiler cannot go on exactly."""
    values = log_mel_run(tone_corpus(24), max_steps=1, save_strategy="steps", save_steps=1)
    trainer_of(values).train()
    monkeypatch.setenv("VOICEHUB_KERNELS", "asr_ctc.ctc=native")
    with pytest.raises(CheckpointMismatchError, match="kernels.*'c'.*'native'"):
        trainer_of(values).train(resume_from_checkpoint=True)


def test_collapse_is_told_with_its_cause(tone_corpus, log_mel_run, trainer_of):
    """A learning rate far too high: the model ends up writing nothing, and is told why."""
    path = tone_corpus(24)
    values = log_mel_run(path, path, max_steps=30, learning_rate=0.05, eval_strategy="steps",
                         eval_steps=5, logging_steps=5)  # fmt: skip
    trainer = trainer_of(values)
    (note,) = [n for n in trainer.experiment.data_report[0].notes if n.startswith("learning-rate")]
    assert "the learning rate 0.05 is over 0.01" in note
    trainer.train()
    alerts = [row["alert"] for row in trainer.state.log_history if "alert" in row]
    (told,) = [alert for alert in alerts if alert.startswith("blank-collapse")]
    assert "(learning-rate) the learning rate 0.05 is over 0.01" in told


def test_the_experiment_is_on_record(learnt):
    trainer, _, _ = learnt
    record = trainer.experiment.record
    assert set(record["manifests"]) == {"train", "eval"}
    assert record["tokenizer"]["kind"] == "characters"
    assert record["front_end"]["front_end"] == "log-mel"
    json.dumps(record)
    report = trainer.experiment.data_report[0]
    assert report.kept + sum(report.dropped.values()) == report.total == 240
    assert "--model" in trainer.experiment.next_command(trainer.run_dir)

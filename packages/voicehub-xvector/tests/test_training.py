"""Whole runs: learning, margins, the best checkpoint, stages, exports, evaluation."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from voicehub.errors import CheckpointMismatchError, ConfigurationError, DataError
from voicehub.models.initial import read_initial_weights
from voicehub.trainer.callbacks import TrainerCallback
from voicehub_xvector.config import LogMelModelConfig, LogMelRunConfig
from voicehub_xvector.conformance import voice
from voicehub_xvector.experiment import build_experiment
from voicehub_xvector.health import EmbeddingMonitor
from voicehub_xvector.model import LogMelXVector, open_model

WAVES = [voice(seed, length)[1] for seed, length in ((1, 9000), (2, 6000), (3, 7000))]


@pytest.fixture(scope="module")
def learnt(voice_corpus, run_values, trainer_of, tmp_path_factory):
    """A short run, its trainer, what it logged, and its final model."""
    folder = tmp_path_factory.mktemp("learnt")
    values = run_values(
        voice_corpus(96), voice_corpus(40, seed=7, name="held"), folder,
        num_train_epochs=6, logging_steps=1, eval_strategy="epoch", save_strategy="epoch",
        metric_for_best_model="eer", load_best_model_at_end=True,
    )  # fmt: skip
    values["model"]["loss"].update(margin_warmup=4, margin_warmup_unit="epoch")
    trainer = trainer_of(values)
    trainer.train()
    return trainer, trainer.state.log_history, trainer.save_final_model()


def test_voices_are_told_apart_and_the_best_is_chosen_by_eer(learnt, voice_corpus):
    trainer, history, directory = learnt
    held = voice_corpus(40, seed=7, name="held")
    rates = [row["eval_eer"] for row in history if "eval_eer" in row]
    assert len(rates) == 6 and min(rates) < 0.05
    assert trainer.state.best_metric == min(rates)
    report = open_model(directory).evaluate(held)
    assert report.metrics["eer"] == pytest.approx(min(rates), abs=1e-9)
    assert report.measured == 40 and report.dropped == {}
    assert report.pictures["det"].startswith(b"\x89PNG")


def test_the_margin_is_logged_as_it_grows(learnt):
    _, history, _ = learnt
    rows = [row for row in history if "loss/margin" in row]
    per_epoch = len(rows) // 6
    for number, row in enumerate(rows):
        expected = 0.1 * min(1.0, number / per_epoch / 4)
        assert row["loss/margin"] == pytest.approx(expected, abs=1e-6)


class _Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **context):
        if state.global_step == 7:
            control.should_training_stop = True
            control.should_save = True


def test_a_stopped_run_goes_on_with_its_margin(voice_corpus, run_values, trainer_of, tmp_path):
    def values(name):
        made = run_values(
            voice_corpus(96), None, tmp_path / name, max_steps=14, logging_steps=1,
            save_strategy="steps", save_steps=7,
        )  # fmt: skip
        made["model"]["loss"].update(margin_warmup=10, margin_warmup_unit="step")
        made["data"]["sampler"] = {
            "kind": "hard-prototypes", "neighbours": 2, "per_speaker": 2,
            "chunk_seconds": [0.2, 0.3], "max_padded_seconds": 4, "max_batch_size": 12,
        }  # fmt: skip
        made["data"]["augment"] = {"gain": {"decibels": [-3, 3]}}
        return made

    whole = trainer_of(values("whole"))
    whole.train()
    stopped = trainer_of(values("cut"), callbacks=[_Stop()])
    stopped.train()
    resumed = trainer_of(values("cut"), callbacks=[_Stop()])
    resumed.train(resume_from_checkpoint=True)
    expected = whole.adapter.state_dict()
    for name, tensor in resumed.adapter.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    for key in ("loss", "loss/margin"):
        logged = [row[key] for row in whole.state.log_history if key in row]
        assert [row[key] for row in resumed.state.log_history if key in row] == logged


def test_artifacts_reload_and_give_equal_embeddings(learnt):
    trainer, _, directory = learnt
    wrapper = trainer.adapter.model
    expected = wrapper.embed(WAVES, 16000)
    again = open_model(directory)
    assert torch.equal(again.embed(WAVES, 16000), expected)
    assert again.classes == ["ann", "bob", "cat", "dan"]
    together = again.embed(WAVES, 16000, batch_size=1)
    torch.testing.assert_close(together, expected, rtol=1e-5, atol=1e-5)


def test_the_exported_program_gives_equal_embeddings(learnt):
    trainer, _, directory = learnt
    folder = directory / "native_export"
    program = torch.export.load(folder / "embedder.pt2").module()
    description = json.loads((folder / "embedder.json").read_text())
    model = trainer.adapter.model
    batch = model.front_end.batch([model.front_end.prepare(wave) for wave in WAVES])
    got = program(batch[description["inputs"]["rows"]["name"]], batch["lengths"])
    torch.testing.assert_close(got, model.embed(WAVES, 16000), rtol=1e-5, atol=1e-5)
    one = program(batch["features"][:1, :40], torch.tensor([40]))
    assert one.shape == (1, 12) and description["sample_rate"] == 16000


ECAPA = {
    "kind": "ecapa", "channels": [16, 16, 16, 16, 24], "attention_channels": 4, "scales": 4,
    "se_channels": 4, "embedding_size": 6,
}  # fmt: skip


@pytest.mark.parametrize("features", ["fbank", "log-mel"])
def test_ecapa_loads_in_speechbrain(features, tmp_path):
    from voicehub_xvector.speechbrain_parts import speechbrain_part

    torch.manual_seed(0)
    config = LogMelModelConfig.model_validate(
        {"features": {"kind": features, "n_mels": 20}, "head": ECAPA}
    )
    model = LogMelXVector.from_config(config, ["ann", "it's"]).load()
    assert model.export_native(tmp_path)
    expected = model.embed(WAVES[:1], 16000)
    if features == "fbank":
        classifier = speechbrain_part("inference.speaker").EncoderClassifier
        theirs = classifier.from_hparams(source=str(tmp_path))
        got = theirs.encode_batch(torch.from_numpy(WAVES[0])[None])[:, 0]
        index, name = theirs.classify_batch(torch.from_numpy(WAVES[0])[None])[2:]
        assert name == [model.classes[int(index)]]
    else:
        theirs = speechbrain_part("inference.interfaces").Pretrained.from_hparams(
            source=str(tmp_path)
        )
        batch = model.front_end.batch([model.front_end.prepare(WAVES[0])])
        theirs.mods.eval()
        got = theirs.mods.embedding_model(batch["features"], torch.ones(1))[:, 0]
    torch.testing.assert_close(got.detach(), expected, rtol=1e-6, atol=1e-6)


def test_ecapa_trains_on_short_recordings(voice_corpus, run_values, trainer_of, tmp_path):
    values = run_values(
        voice_corpus(24), None, tmp_path, max_steps=2, logging_steps=1, learning_rate=1e-3
    )
    values["model"]["head"] = ECAPA
    values["model"]["features"] = {"kind": "fbank", "n_mels": 20}
    values["data"]["sampler"] = {
        "kind": "random-chunk", "chunk_seconds": [0.4, 0.5], "max_padded_seconds": 4,
        "max_batch_size": 8,
    }  # fmt: skip
    trainer = trainer_of(values)
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 2 and np.isfinite(losses).all()
    means = [m.running_mean for m in trainer.adapter.module.modules() if hasattr(m, "running_mean")]
    assert all(mean.abs().sum() > 0 for mean in means)


# -- starting from other weights -----------------------------------------------------------------


def _started(directory, classes, **loss):
    config = copy.deepcopy(open_model(directory).config)
    for name, value in loss.items():
        setattr(config.loss, name, value)
    model = LogMelXVector.from_config(config, classes)
    model.start_from(read_initial_weights(directory, model_type="xvector-logmel"))
    return model.load_for_training()


def test_prototypes_follow_their_speakers(learnt):
    _, _, directory = learnt
    before = open_model(directory)
    model = _started(directory, ["dan", "eve", "ann"])
    old, new = before.network.loss.weight, model.network.loss.weight
    assert torch.equal(new[0], old[3]) and torch.equal(new[2], old[0])
    assert not any(torch.equal(new[1], row) for row in old)
    assert torch.equal(model.network.head.embedding.weight, before.network.head.embedding.weight)


def test_another_number_of_sub_centres_starts_new_prototypes(learnt):
    _, _, directory = learnt
    model = _started(directory, ["ann", "bob", "cat", "dan"], sub_centres=2)
    assert model.network.loss.weight.shape == (8, 12)


def test_weights_of_another_shape_are_refused(learnt):
    _, _, directory = learnt
    config = copy.deepcopy(open_model(directory).config)
    config.head.embedding_size = 7
    model = LogMelXVector.from_config(config, ["ann", "bob"])
    model.start_from(read_initial_weights(directory, model_type="xvector-logmel"))
    with pytest.raises(CheckpointMismatchError, match=r"head\.embedding"):
        model.load_for_training()


# -- evaluation and settings ---------------------------------------------------------------------


def test_trials_are_scored(learnt, voice_corpus, tmp_path):
    _, _, directory = learnt
    manifest = voice_corpus(40, seed=7, name="held")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    lines = [
        f"{int(a['speaker'] == b['speaker'])} {a['id']} {b['id']}"
        for i, a in enumerate(rows)
        for b in rows[:i]
    ]
    trials = tmp_path / "trials.txt"
    trials.write_text("\n".join(lines) + "\n")
    model = open_model(directory)
    by_list = model.evaluate(manifest, trials=trials).metrics
    assert by_list["eer"] == pytest.approx(model.evaluate(manifest).metrics["eer"], abs=1e-9)
    with pytest.raises(ConfigurationError, match="'trials' alone, got beam_size"):
        model.evaluate(manifest, beam_size=4)


def test_why_nothing_is_verified_is_told(learnt, voice_corpus, tmp_path):
    manifest = voice_corpus(40, seed=7, name="held")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()[:3]]
    paths = [str(manifest.parent / row["audio_filepath"]) for row in rows]
    (tmp_path / "m.jsonl").write_text("".join(f'{{"audio_filepath": "{p}"}}\n' for p in paths))
    with pytest.raises(DataError, match=r"no row can be embedded\. Dropped: 3 no-speaker"):
        open_model(learnt[2]).evaluate(tmp_path / "m.jsonl")


def test_embeddings_of_other_rates_are_resampled(learnt):
    from voicehub_data.audio import resample

    _, _, directory = learnt
    model = open_model(directory)
    wave = WAVES[0]
    low = resample(wave, 16000, 8000)
    got, expected = model.embed([low], 8000)[0], model.embed([resample(low, 8000, 16000)], 16000)[0]
    torch.testing.assert_close(got, expected)


def test_batch_settings_have_one_home(voice_corpus, run_values, tmp_path):
    values = run_values(voice_corpus(24), None, tmp_path, per_device_train_batch_size=4)
    with pytest.raises(ValueError, match=r"set data\.sampler instead"):
        LogMelRunConfig.model_validate(values)


def test_doubts_name_what_looks_wrong(voice_corpus, run_values, trainer_of, tmp_path):
    values = run_values(voice_corpus(24), None, tmp_path)
    values["model"]["loss"].update(inter_top_k=9)
    experiment = build_experiment(LogMelRunConfig.model_validate(values))
    notes = " ".join(experiment.data_report[0].notes)
    assert "inter-top-k: inter_top_k 9 covers all 4 classes" in notes


def test_chance_is_told_once():
    alerts = []

    class _Trainer:
        def alert(self, name, text):
            alerts.append(name)

    class _State:
        global_step, max_steps = 900, 1000

    monitor = EmbeddingMonitor()
    for rate in (0.5, 0.49, 0.5, 0.48):
        monitor.on_evaluate(None, _State, None, metrics={"eval_eer": rate}, trainer=_Trainer())
    assert alerts == ["embeddings-at-chance"]
    again = EmbeddingMonitor()
    again.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    again.on_evaluate(None, _State, None, metrics={"eval_eer": 0.5}, trainer=_Trainer())
    assert alerts == ["embeddings-at-chance"]


def test_waves_must_be_mono_and_finite(learnt):
    model = open_model(learnt[2])
    for bad in (np.zeros((2, 50), np.float32), np.zeros(0, np.float32), np.full(9, np.nan)):
        with pytest.raises(DataError, match="waveform 0 of shape"):
            model.embed([bad], 16000)

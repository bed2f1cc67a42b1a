"""From a configuration to data and model: what is dropped, shared rows, what a run is told."""

from __future__ import annotations

import json

import pytest
import soundfile

from voicehub.cli.app import run
from voicehub.data.keyed_random import SampleKey
from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_llm.config import AsrLlmRunConfig
from voicehub_asr_llm.experiment import build_experiment
from voicehub_data.synthetic.tones import write_tone_corpus


@pytest.fixture(scope="module")
def tones(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    return write_tone_corpus(folder / "a", clips=8), write_tone_corpus(
        folder / "b", clips=4, seed=1
    )


@pytest.fixture
def config_of(settings, tones):
    def make(*parts, data=None, training=None, **changes):
        train, unseen = (str(path) for path in tones)
        values = {
            "family": "asr-llm",
            "model_type": "asr-llm",
            "model": settings(*parts, **changes),
            "data": {"train": train, "eval": unseen, "workers": 0, **(data or {})},
            "training": {"use_cpu": True, "eval_strategy": "epoch", **(training or {})},
        }
        return AsrLlmRunConfig.model_validate(values)

    return make


def changed(manifest, folder, *changes):
    """A manifest with other texts or durations in its first rows."""
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for row in rows:
        row["audio_filepath"] = str(manifest.parent / row["audio_filepath"])
    for row, change in zip(rows, changes, strict=False):
        row.update(change)
    path = folder / "changed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_everything_is_there_and_no_weights(config_of):
    experiment = build_experiment(config_of())
    assert not experiment.model.is_loaded
    assert len(experiment.train_dataset) == 8
    assert list(experiment.eval_datasets) == ["eval"]
    assert experiment.data_collator.packing == "rows"
    report = experiment.data_report[0]
    assert (report.total, report.kept, report.dropped) == (8, 8, {})
    assert any("packing: rows of at most 2,048" in note for note in report.notes)
    assert set(experiment.record) >= {"manifests", "encoder", "decoder", "chat", "prompt"}
    batch = experiment.data_collator([experiment.train_dataset[i] for i in range(3)])
    assert batch["input_ids"].shape[0] == 1
    assert batch["batch_info"]["texts"][0] == experiment.train_dataset.rows[0].text


def test_items_are_kept_in_memory_and_draws_are_keyed(config_of):
    speed = {"augment": {"speed": {"factors": [0.9, 1.1]}}}
    dataset = build_experiment(config_of(data=speed)).train_dataset
    key = SampleKey(1, 0, 0, 0)
    assert dataset.get_item(0, key).seconds == dataset.get_item(0, key).seconds
    lengths = {dataset.get_item(0, SampleKey(1, 0, draw, 0)).seconds for draw in range(9)}
    assert len(lengths) == 2
    kept = build_experiment(config_of()).train_dataset
    assert kept[0].prepared is kept[0].prepared


def test_what_the_decoder_cannot_spell_is_dropped_and_counted(config_of, tones, tmp_path):
    data = {"train": changed(tones[0], tmp_path, {"text": "größer"}), "max_drop_fraction": 0.2}
    experiment = build_experiment(config_of(data=data))
    report = experiment.data_report[0]
    assert (report.total, report.kept) == (8, 7)
    assert report.dropped == {"unusable-by-model": 1}
    assert any("'größer': its tokens decode to 'gr<unk>" in note for note in report.notes)
    assert len(experiment.train_dataset) == 7
    assert sorted(i for batch in experiment.train_plan.batches(0) for i in batch) == list(range(7))
    with pytest.raises(DataError, match="1 of 8 rows cannot be used with this encoder and decoder"):
        build_experiment(config_of(data={**data, "max_drop_fraction": 0.1}))


def test_a_source_of_which_nothing_can_be_used_is_refused_by_name(config_of, tones, tmp_path):
    strange = changed(tones[1], tmp_path, *[{"text": "größer"}] * 4)
    data = {"train": [str(tones[0]), strange], "eval": {}, "max_drop_fraction": 0.5}
    with pytest.raises(DataError, match="'train/changed': .* can use none of its 4 rows"):
        build_experiment(config_of(data=data, training={"eval_strategy": "no"}))


def test_conversations_over_the_limit_are_dropped(config_of):
    with pytest.raises(DataError, match=r"tokens, over data\.max_tokens 40"):
        build_experiment(config_of(data={"max_tokens": 40}))


def test_clips_longer_than_the_encoder_sees_are_dropped(config_of, tones, tmp_path):
    path = tmp_path / "long.wav"
    samples, rate = soundfile.read(tones[0].parent / "000.wav")
    soundfile.write(path, [*samples, *samples], rate)
    change = {"audio_filepath": str(path), "duration": 2.4}
    data = {"train": changed(tones[0], tmp_path, change), "max_drop_fraction": 0.2}
    report = build_experiment(config_of("whisper", data=data)).data_report[0]
    assert report.dropped == {"unusable-by-model": 1}
    assert any("2.4 s; the encoder sees 2 s" in note for note in report.notes)


def test_masks_are_for_features(config_of):
    masks = {"augment": {"spec_augment": {"time_masks": 1}}}
    dataset = build_experiment(config_of(data=masks)).train_dataset
    key = SampleKey(1, 0, 0, 0)
    assert (dataset.get_item(0, key).prepared.rows != dataset[0].prepared.rows).any()
    for kind in ("wav2vec2", "whisper"):
        with pytest.raises(ConfigurationError, match="spec_augment masks features"):
            build_experiment(config_of(kind, data=masks))


def test_dropped_frames_are_zero_and_keyed(config_of, model_of, collate, items_of):
    config = config_of(recipe="projector", projector={"stride": 2, "frame_dropout": 0.4})
    experiment = build_experiment(config)
    items = [experiment.train_dataset.get_item(i, SampleKey(1, 0, i, i)) for i in range(3)]
    batch = experiment.data_collator(items)
    keep = batch["frame_keep"]
    assert keep.shape == (3, max(batch["frame_counts"]))
    assert 0.4 < float(keep.mean()) < 0.8
    assert (experiment.data_collator(items)["frame_keep"] == keep).all()
    assert "frame_keep" not in experiment.data_collator([experiment.train_dataset[0]])
    model = experiment.model.load_for_training()
    batch.pop("batch_info")
    seen = []
    model.network.projector.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.network.hear(batch)
    assert not seen[0][keep == 0].any()
    assert seen[0][keep == 1].any()


def test_prompts_follow_the_punctuation_of_their_source(config_of, tones, tmp_path):
    marked = [{"text": f"Well, {word}."} for word in "abcdefgh"]
    data = {"train": [changed(tones[0], tmp_path, *marked), str(tones[1])], "eval": {}}
    experiment = build_experiment(config_of(data=data, training={"eval_strategy": "no"}))
    dataset = experiment.train_dataset
    assert dataset.prompts == ["punctuated"] * 8 + ["plain"] * 4
    assert experiment.model.prompt_kind == "punctuated"
    plain = config_of(data=data, training={"eval_strategy": "no"}, prompt={"default": "plain"})
    assert build_experiment(plain).model.prompt_kind == "plain"


def test_fingerprints_change_with_what_they_stand_for(config_of, decoder):
    def fingerprint(**changes):
        experiment = build_experiment(config_of(**changes))
        return json.dumps(
            [
                experiment.train_dataset.resume_fingerprint(),
                experiment.data_collator.resume_fingerprint(),
            ]
        )

    base = fingerprint()
    assert base == fingerprint()
    others = [
        fingerprint(data={"packing": "none"}),
        fingerprint(prompt={"plain": "Write"}),
        fingerprint(projector={"stride": 3}),
        fingerprint(data={"augment": {"gain": {}}}),
        fingerprint(data={"silence": {"rate": 0.2}}),
    ]
    assert len({base, *others}) == 6


@pytest.mark.parametrize("preset", ["asr-llm/tiny"])
def test_the_chain_works_from_training_to_loading(preset, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = run(["train", preset, "--smoke", "--json"])
    captured = capfd.readouterr()
    assert code == 0, captured.err
    steps = json.loads(captured.out.splitlines()[-1])["smoke"]["steps"]
    names = [step["name"] for step in steps]
    assert names == ["train", "save", "resume", "eval", "sample", "export", "load"]
    assert "2 stages" in steps[0]["detail"]
    assert "eval_token_accuracy" in steps[3]["detail"]


def test_the_spec_is_light_and_leads_to_what_it_names():
    from voicehub.plugins.loading import resolve_reference
    from voicehub.specs.registry import get_training_spec

    spec = get_training_spec("asr-llm")
    assert spec.is_turnkey
    assert resolve_reference(spec.config_class) is AsrLlmRunConfig
    assert resolve_reference(spec.experiment_factory) is build_experiment

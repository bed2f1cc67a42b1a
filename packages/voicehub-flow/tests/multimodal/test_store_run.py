"""The whole way: recordings to a store, training, resuming, latents, sound."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from voicehub.cli.compose import compose_preset
from voicehub.cli.validate import validate_run
from voicehub.errors import (
    AssetError,
    ConfigurationError,
    DataError,
    UnsupportedTrainingError,
)
from voicehub.models.assets import locate_assets, named_assets, require_assets
from voicehub.models.initial import read_initial_weights
from voicehub.models.sampling import Prompt
from voicehub.trainer.trainer import Trainer
from voicehub_flow.multimodal.model import MultimodalFlow
from voicehub_flow.store.experiment import build_experiment
from voicehub_flow.store.smoke import make_tone_store

SIZES = [
    f"model.architecture.{key}={value}"
    for key, value in {
        "num_heads": 2,
        "head_dim": 8,
        "depth": 2,
        "fused_depth": 1,
        "mlp_multiple": 8,
        "sync_segment": 2,
    }.items()
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store with video and one without."""
    base = tmp_path_factory.mktemp("stores")
    video = make_tone_store(base / "seen", base / "video", seed=0)
    audio = make_tone_store(base / "heard", base / "audio", seed=1, video=False)
    return video, audio


def settled(stores, output, *overrides, preset="flow/tiny-store"):
    """The experiment of a preset over the stores, and its configuration."""
    video, audio = stores
    given = [
        f"data.train=[{{path: {video}, rate: 2}},{{path: {audio}}}]",
        f"training.output_dir={output}",
        "data.global_batch_size=8",
        "training.per_device_train_batch_size=4",
        "training.max_steps=4",
        "training.warmup_steps=1",
        "training.logging_steps=1",
        "training.posthoc_ema_snapshot_steps=2",
        *SIZES,
        *overrides,
    ]
    _, config = validate_run(compose_preset(preset, given))
    return build_experiment(config), config


def trainer_of(experiment, config):
    return Trainer(
        model=experiment.model,
        args=config.training,
        train_dataset=experiment.train_dataset,
        eval_dataset=experiment.eval_datasets or None,
        data_collator=experiment.data_collator,
        train_plan=experiment.train_plan,
        eval_plans=experiment.eval_plans,
    )


@pytest.fixture(scope="module")
def finished(stores, tmp_path_factory):
    """A finished run with a checkpoint in the middle: trainer, artifact, configuration."""
    output = tmp_path_factory.mktemp("run")
    saving = ("training.save_strategy=steps", "training.save_steps=2")
    experiment, config = settled(stores, output, f"data.eval={stores[0]}", *saving)
    trainer = trainer_of(experiment, config)
    trainer.train()
    return trainer, trainer.save_model(output / "artifact"), config


def test_a_run_reports_its_mix_its_batch_and_what_has_no_video(stores, tmp_path):
    experiment, config = settled(stores, tmp_path)
    notes = "\n".join(note for report in experiment.data_report for note in report.notes)
    assert "rate 2: 24 draws an epoch, 66.7 % of the mix" in notes
    assert "global batch 8: 4 clips x 2 accumulated x 1 processes" in notes
    assert "without video" in notes
    assert config.training.gradient_accumulation_steps == 2
    batch = experiment.data_collator([experiment.train_dataset[i] for i in (0, 20)])
    assert batch["no_clip"].tolist() == [False, True]


def test_resumed_in_the_middle_the_run_ends_with_the_same_bits(stores, finished, tmp_path):
    trainer, _, config = finished
    saving = ("training.save_strategy=steps", "training.save_steps=2")
    experiment, again = settled(stores, tmp_path, f"data.eval={stores[0]}", *saving)
    other = trainer_of(experiment, again)
    checkpoint = trainer.run_dir / "checkpoint-2"
    other.train(resume_from_checkpoint=str(checkpoint))
    for name, tensor in trainer.adapter.state_dict().items():
        assert torch.equal(tensor, other.adapter.state_dict()[name]), name
    assert config.training.max_steps == other.state.global_step


def test_latents_of_a_finished_model_become_sound(finished):
    _, artifact, config = finished
    model = MultimodalFlow.from_pretrained(artifact, model_type="mmaudio", lazy_load=False)
    model.configure_sampling(config)
    assert model.clip_seconds == 0.6 and model.sampling_rate == 4000
    name = model._sets[0].ids[0]
    prompts = (Prompt("t", text="abba cd"), Prompt("v", features=name, options={"steps": 2}))
    for prompt in prompts:
        made = model.sample(prompt, seed=1)
        assert made.waveform.dtype == np.float32 and np.isfinite(made.waveform).all()
        assert made.duration == pytest.approx(0.6, abs=0.05)
        assert np.array_equal(made.waveform, model.sample(prompt, seed=1).waveform)


def test_what_was_extracted_and_what_normalises_it_go_with_the_model(stores, finished, tmp_path):
    _, artifact, _ = finished
    model = MultimodalFlow.from_pretrained(artifact, model_type="mmaudio", lazy_load=False)
    experiment, _ = settled(stores, tmp_path)
    fresh = experiment.model.load()
    for name in ("latent_mean", "latent_std", "null_text"):
        assert torch.equal(model.model.get_buffer(name), fresh.model.get_buffer(name)), name
        assert name not in dict(model.model.named_parameters())
    data = experiment.train_dataset
    frames = torch.cat([data[i].mean for i in range(len(data.sets[0]))])
    torch.testing.assert_close(fresh.model.latent_mean, frames.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fresh.model.latent_std, frames.std(0), rtol=1e-4, atol=1e-5)
    copied = shutil.copytree(artifact, tmp_path / "copy")
    settings = copied / "extractors" / "audio" / "extractor.json"
    document = json.loads(settings.read_text(encoding="utf-8"))
    document["settings"]["log_floor"] = 1e-3
    settings.write_text(json.dumps(document), encoding="utf-8")
    changed = MultimodalFlow.from_pretrained(copied, model_type="mmaudio")
    with pytest.raises(DataError, match="log_floor 1e-05 became 0.001"):
        _ = changed.audio


def test_a_run_that_starts_from_an_artifact_keeps_its_latent_statistics(stores, finished, tmp_path):
    trainer, artifact, _ = finished
    experiment, _ = settled((stores[1], stores[0]), tmp_path, "data.train.0.rate=1")
    own = experiment.model._initial["latent_mean"]
    assert not torch.equal(own, trainer.adapter.module.latent_mean)
    experiment.model.start_from(read_initial_weights(artifact, model_type="mmaudio"))
    started = experiment.model.load_for_training().model
    for name, tensor in started.state_dict().items():
        assert torch.equal(tensor, trainer.adapter.state_dict()[name]), name


def test_training_what_is_published_for_inference_alone_is_refused_by_name(stores, tmp_path):
    with pytest.raises(UnsupportedTrainingError, match=r"mmaudio-large-44k-v2.*flow/v2a-large-44k"):
        settled(stores, tmp_path, preset="flow/v2a-large-44k-v2")


def test_stores_that_do_not_fit_the_preset_are_named(stores, tmp_path):
    with pytest.raises(DataError, match=r"mean: a clip has the shape .*; expected \[25, 20\]"):
        settled(
            stores,
            tmp_path,
            "model.architecture.latent_frames=25",
            "model.architecture.latent_dim=20",
        )


def test_a_batch_that_processes_cannot_share_is_refused(stores, tmp_path, monkeypatch):
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="8 cannot be shared by 3 processes: take 6 or 9"):
        settled(stores, tmp_path, "training.strategy=ddp")
    _, config = settled(stores, tmp_path, "training.strategy=ddp", "data.global_batch_size=36")
    training = config.training
    assert (training.per_device_train_batch_size, training.gradient_accumulation_steps) == (4, 3)


def test_everything_that_a_run_reads_is_an_asset_of_its_configuration(stores, tmp_path):
    lost = str(tmp_path / "lost.pth")
    _, config = validate_run(
        compose_preset(
            "flow/tiny-store",
            [
                f"data.train=[{{path: {stores[0]}, tsv: {tmp_path / 'lost.tsv'}}}]",
                f"data.eval={stores[1]}",
                f"data.null_text={lost}",
            ],
        )
    )
    found = {asset.setting: asset.source for asset in named_assets(config)}
    assert found["data.train.0.path"] == str(stores[0])
    assert found["data.eval.eval.path"] == str(stores[1])
    with pytest.raises(AssetError) as raised:
        require_assets(locate_assets(named_assets(config)))
    assert "data.train.0.tsv" in str(raised.value) and lost in str(raised.value)


def test_metrics_of_samples_know_the_captions_of_the_clips(stores, tmp_path):
    experiment, _ = settled(
        stores, tmp_path, "after_training.samples=3", "after_training.metrics=[frechet_distance]"
    )
    part = experiment.train_dataset.sets[0]
    captions = dict(zip(part.ids, part.texts, strict=True))
    examples = experiment.final_steps[1].examples
    assert len(examples) == 3 and all(captions.values())
    for name, example in examples.items():
        # The prompt itself has none: the clip's own features of it are taken.
        assert example.prompt.text is None and example.text == captions[name]


def test_stores_of_other_extractors_are_told(stores, tmp_path):
    experiment, _ = settled(stores, tmp_path)
    first, second = (" ".join(report.notes) for report in experiment.data_report)
    assert "audio features are of another extractor than those of 0-video" in second
    assert "text features are of" not in second and "another extractor" not in first


def test_a_run_ends_with_the_command_that_samples_from_it(stores, tmp_path):
    experiment, _ = settled(stores, tmp_path)
    text = experiment.train_dataset[0].caption
    asked = f"printf '%s\\n' '{text}' > prompts.txt && voicehub sample --run {tmp_path} --prompts"
    plain = experiment.next_command(tmp_path / "final-model")
    assert plain == f"{asked} prompts.txt --out samples"
    averaged = experiment.next_command(tmp_path / "final-model-ema")
    assert averaged == f"{asked} prompts.txt --weights ema --out samples"

"""Published checkpoints and artifacts of ours: reading, growing vocabularies, what is refused."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from voicehub import AutoModelForTextToSpeech
from voicehub.cli.app import run
from voicehub.errors import (
    CheckpointError,
    CheckpointMismatchError,
    ConfigurationError,
    DataError,
)
from voicehub.models.initial import read_initial_weights
from voicehub_flow.config import F5TTSModelConfig
from voicehub_flow.smoke import make_tiny_checkpoint
from voicehub_flow.tts.conformance import ARCHITECTURE, MEL
from voicehub_flow.tts.experiment import build_experiment
from voicehub_flow.tts.model import F5TTS
from voicehub_flow.tts.published import TEXT_TABLE, open_published, read_weights
from voicehub_flow.tts.weights import grown

SIZES = {**ARCHITECTURE, "text_layout": "front"}


def published_config(path, **settings):
    text = {"kind": "checkpoint", **settings.pop("text", {})}
    values = {"path": str(path), "architecture": SIZES, "mel": MEL, "text": text}
    return F5TTSModelConfig.load({**values, **settings})


def run_config(corpus, path, **settings):
    from voicehub_flow.config import F5TTSRunConfig

    top = {name: settings.pop(name) for name in ("init_from",) if name in settings}
    return F5TTSRunConfig.model_validate(
        {
            "family": "flow",
            "model_type": "f5tts",
            "model": published_config(path, **settings).model_dump(),
            "data": {"train": str(corpus / "train.jsonl"), "max_unknown_fraction": 0.5},
            "training": {"output_dir": "unused", "use_cpu": True},
            **top,
        }
    )


def loaded(config, **options):
    given = config.model_dump(exclude={"path"})
    model = AutoModelForTextToSpeech.from_pretrained(
        config.path, model_type="f5-tts", **given, **options
    )
    return model.load()


# -- reading ---------------------------------------------------------------------------------


def test_a_published_checkpoint_is_read_by_its_alias(checkpoint):
    model = loaded(published_config(checkpoint))
    assert model.model_type == "f5tts" and not model.model.training
    stored = load_file(checkpoint / "model.safetensors")
    assert all(name.startswith("ema_model.transformer.") for name in stored)
    for name, tensor in model.model.state_dict().items():
        assert torch.equal(tensor, stored[f"ema_model.transformer.{name}"]), name


def test_what_belongs_to_the_trainer_is_left_out(checkpoint, tmp_path):
    tensors = load_file(checkpoint / "model.safetensors")
    more = ("initted", "step", "update", "ema_model.mel_spec.mel_stft.spectrogram.window")
    tensors |= {name: torch.zeros(3) for name in more}
    tensors["ema_model.transformer.rotary_embed.inv_freq"] = torch.zeros(4)
    save_file(tensors, tmp_path / "model_1250000.safetensors")
    shutil.copy(checkpoint / "vocab.txt", tmp_path)
    opened = open_published(published_config(tmp_path))
    assert opened.weights.name == "model_1250000.safetensors"
    assert set(read_weights(opened.weights)) == set(
        loaded(published_config(checkpoint)).model.state_dict()
    )


def test_a_speaking_model_needs_a_recording(checkpoint):
    model = loaded(published_config(checkpoint))
    with pytest.raises(ConfigurationError, match="prompt_audio and prompt_text"):
        model.synthesize(["abc"])
    audio = torch.randn(2000).numpy() * 0.1
    (spoken,) = model.synthesize(["abcabc"], prompt_audio=audio, prompt_text="ab abc", steps=2)
    frames = 1 + 2000 // MEL["hop_length"]
    assert len(spoken.waveform) == (frames * 6 // 6 - 1) * MEL["hop_length"]
    with pytest.raises(ConfigurationError, match="belong together"):
        model.synthesize(["abc"], prompt_text="ab")


# -- what is refused ---------------------------------------------------------------------------


def test_another_vocabulary_is_refused(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "c")
    with (tmp_path / "c" / "vocab.txt").open("a") as file:
        file.write("q\n")
    with pytest.raises(CheckpointMismatchError, match="6 rows, and vocab.txt beside it names 6"):
        open_published(published_config(tmp_path / "c"))
    (tmp_path / "c" / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.txt cannot be read"):
        open_published(published_config(tmp_path / "c"))


def test_other_sizes_are_named_with_those_of_the_file(checkpoint):
    config = published_config(checkpoint, architecture={**SIZES, "depth": 3, "text_dim": 10})
    with pytest.raises(CheckpointMismatchError) as caught:
        open_published(config)
    assert "dim 16, depth 2, ff_mult 2, text_dim 8, conv_layers 1, n_mels 8" in str(caught.value)


def test_pickles_and_two_checkpoints_are_refused(checkpoint, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="pickles"):
        open_published(published_config(tmp_path))
    with pytest.raises(CheckpointError, match="Pickles"):
        open_published(published_config(tmp_path / "model.pt"))
    for name in ("model_1.safetensors", "model_2.safetensors"):
        shutil.copy(checkpoint / "model.safetensors", tmp_path / name)
    shutil.copy(checkpoint / "vocab.txt", tmp_path)
    with pytest.raises(ConfigurationError, match=r"model_1\.safetensors, model_2\.safetensors"):
        open_published(published_config(tmp_path))
    assert open_published(published_config(tmp_path / "model_2.safetensors"))


def test_an_artifact_keeps_its_settings(checkpoint, corpus, tmp_path):
    model = build_experiment(run_config(corpus, checkpoint)).model.load_for_training()
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="has its own 'mel'"):
        F5TTS(tmp_path, mel=MEL)
    with pytest.raises(ConfigurationError, match="Did you mean 'vocoder'"):
        F5TTS(tmp_path, vocodr={})


# -- vocabularies ------------------------------------------------------------------------------


def test_new_symbols_get_rows_and_the_others_keep_theirs(checkpoint, corpus):
    built = build_experiment(run_config(corpus, checkpoint))
    notes = "\n".join(built.data_report[0].notes)
    assert "1 symbols are not in that of" in notes and "'d' 6x" in notes
    assert built.model.vocabulary.symbols == (" ", "a", "b", "c", "x", "d")
    module = built.model.load_for_training().model
    old = load_file(checkpoint / "model.safetensors")[f"ema_model.transformer.{TEXT_TABLE}"]
    table = module.text_embed.text_embed.weight
    assert table.shape[0] == 7 and torch.equal(table[:6], old)
    assert bool(table[6].any()) and not any(torch.equal(table[6], row) for row in old)
    again = build_experiment(run_config(corpus, checkpoint)).model.load_for_training().model
    assert torch.equal(again.text_embed.text_embed.weight, table)


def test_new_symbols_can_be_refused_or_left_out(checkpoint, corpus):
    with pytest.raises(DataError, match="'d' 6x"):
        build_experiment(run_config(corpus, checkpoint, text={"new_symbols": "refuse"}))
    kept = build_experiment(run_config(corpus, checkpoint, text={"new_symbols": "leave_out"}))
    assert len(kept.model.vocabulary) == 5
    assert any("left out: 'd' 6x" in note for note in kept.data_report[0].notes)


def test_grown_rows_look_like_the_old_ones():
    table = torch.randn(400, 3) * 2 + 5
    made = grown(table, 2400, seed=1)
    assert torch.equal(made[:400], table)
    torch.testing.assert_close(made[400:].mean(0), table[1:].mean(0), atol=0.3, rtol=0)
    torch.testing.assert_close(made[400:].std(0), table[1:].std(0), atol=0.3, rtol=0)


def test_speakers_are_new_and_change_nothing_at_first(checkpoint, corpus):
    plain = build_experiment(run_config(corpus, checkpoint)).model
    voiced = build_experiment(run_config(corpus, checkpoint, speakers="always")).model
    assert len(plain.voices) == 0 and voiced.voices.names == ("anna", "bert")
    assert not bool(voiced.load_for_training().model.speaker_embed.weight.any())


# -- artifacts ---------------------------------------------------------------------------------


def test_an_export_is_a_published_checkpoint(checkpoint, corpus, tmp_path):
    model = build_experiment(run_config(corpus, checkpoint)).model.load_for_training()
    assert model.export_native(tmp_path)
    again = loaded(published_config(tmp_path))
    for name, tensor in model.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name
    assert again.vocabulary.symbols == model.vocabulary.symbols
    voiced = build_experiment(run_config(corpus, checkpoint, speakers="always")).model
    assert not voiced.load_for_training().export_native(tmp_path / "none")


def test_weights_of_an_artifact_start_a_run_with_more_symbols(corpus, tmp_path, caplog):
    checkpoint = make_tiny_checkpoint(tmp_path / "published", (" ", "a", "b", "c", "d"))
    earlier = build_experiment(run_config(corpus, checkpoint)).model.load_for_training()
    earlier.save_pretrained(tmp_path / "artifact")
    rows = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["audio_filepath"] = str(corpus / row["audio_filepath"])
        row["text"] += "!"
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = run_config(corpus, checkpoint, init_from=str(tmp_path / "artifact"))
    config.data.train[0].path = str(tmp_path / "train.jsonl")
    model = build_experiment(config).model
    weights = read_initial_weights(tmp_path / "artifact", model_type="f5tts")
    model.start_from(weights)
    with caplog.at_level(logging.INFO):
        module = model.load_for_training().model
    assert model.vocabulary.symbols[-1] == "!" and len(model.vocabulary) == 6
    assert torch.equal(
        module.text_embed.text_embed.weight[:6], earlier.model.text_embed.text_embed.weight
    )
    assert weights.sha256 in caplog.text and "1 rows of" in caplog.text


def test_settings_that_no_shape_gives_away_must_be_those_of_the_artifact(
    checkpoint, corpus, tmp_path
):
    build_experiment(run_config(corpus, checkpoint)).model.load_for_training().save_pretrained(
        tmp_path
    )
    for change, said in (
        ({"architecture": {**SIZES, "text_layout": "spread"}}, "text_layout: 'front' in the"),
        ({"mel": {**MEL, "hop_length": 32}}, "model.mel.hop_length: 64 in the artifact, 32 here"),
    ):
        config = run_config(corpus, checkpoint, init_from=str(tmp_path), **change)
        with pytest.raises(CheckpointMismatchError, match=said):
            build_experiment(config)
    build_experiment(run_config(corpus, checkpoint, init_from=str(tmp_path)))


# -- by the command line -----------------------------------------------------------------------


def test_the_file_and_its_digest_are_told_and_two_starts_are_refused(
    checkpoint, corpus, tmp_path, capsys
):
    sizes = [f"model.architecture.{key}={value}" for key, value in SIZES.items()]
    mel = [f"model.mel.{key}={value}" for key, value in MEL.items()]
    out = tmp_path / "run"
    words = [
        "train", "flow/f5-finetune", f"model.path={checkpoint}", "model.subfolder=null",
        f"data.train={corpus / 'train.jsonl'}", "data.max_unknown_fraction=0.5", *sizes, *mel,
        f"training.output_dir={out}", "training.max_steps=2", "training.use_cpu=true",
        "training.warmup_ratio=0", "training.save_strategy=no", "data.filters.min_duration=0.1",
        "model.vocoder.iterations=2",
    ]  # fmt: skip
    assert run(words) == 0
    shown = capsys.readouterr().out
    digest = read_digest(checkpoint / "model.safetensors")
    assert digest in " ".join(shown.split()).replace(" ", "") or digest in shown
    assert "voicehub synthesize --model" in shown
    assert digest in (out / "run.json").read_text(encoding="utf-8")
    again = [*words, "training.overwrite_output_dir=true", f"init_from={out}", "resume=true"]
    assert run(again) != 0
    assert "exclude each other" in capsys.readouterr().err


def read_digest(path):
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_checkpoint_in_a_folder_of_a_repository(checkpoint, monkeypatch, tmp_path):
    """Where the Hub's cache holds it, it is found without a network; elsewhere it is remote."""
    import huggingface_hub

    snapshot = tmp_path / "snapshot"
    shutil.copytree(checkpoint, snapshot / "v1")
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    config = published_config("someone/else", subfolder="v1", local_files_only=True)
    assert open_published(config).weights == snapshot / "v1" / "model.safetensors"
    assert asked["allow_patterns"] == ["v1/*.safetensors", "v1/vocab.txt"]
    assert asked["local_files_only"] is True
    (remote,) = config.assets("model")
    assert remote.kind == "dataset" and remote.fetch is not None
    found = str(snapshot / "v1" / "vocab.txt")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: found)
    (cached,) = config.assets("model")
    assert cached.kind == "file" and cached.source == str(snapshot / "v1")

"""What is loaded, what is refused and by what words."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from voicehub.errors import CheckpointError, CheckpointMismatchError, ConfigurationError
from voicehub_hf.encoders import CTC_ENCODERS, base_encoder, ctc_encoder, ctc_head
from voicehub_hf.loading import load_checkpoint, load_ctc


@pytest.fixture
def copy_of(checkpoint_of, tmp_path):
    """Copy a tiny checkpoint, to be damaged."""

    def copied(model_type, name="copy", **settings):
        return shutil.copytree(checkpoint_of(model_type, **settings), tmp_path / name)

    return copied


def edit_config(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_a_ctc_checkpoint_loads_whole(checkpoint_of, model_type):
    loaded = load_checkpoint(checkpoint_of(model_type))
    assert loaded.new_parameters == ()
    assert loaded.encoder is CTC_ENCODERS[model_type]
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32
    model, processor = load_ctc(checkpoint_of(model_type))
    assert type(processor) is type(loaded.processor)
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_the_same_seed_makes_the_same_checkpoint(model_type, vocabulary, tmp_path):
    from voicehub_hf.testing import make_tiny_ctc_checkpoint

    state = torch.random.get_rng_state()
    folders = [
        make_tiny_ctc_checkpoint(tmp_path / str(i), model_type, vocabulary, seed=seed)
        for i, seed in enumerate((3, 3, 4))
    ]
    assert torch.equal(torch.random.get_rng_state(), state)
    first, same, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == same
    assert first != other


@pytest.mark.parametrize("vocab_size", [30, 12])
def test_a_new_head_is_drawn_from_its_seed(checkpoint_of, model_type, vocab_size):
    """Also over a head of the same size, whose outputs stand for other tokens."""
    folder = checkpoint_of(model_type)
    kept = load_checkpoint(folder)
    state = torch.random.get_rng_state()
    new = load_checkpoint(folder, vocab_size=vocab_size, pad_token_id=5, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert new.model.config.vocab_size == vocab_size
    assert new.model.config.pad_token_id == 5
    head = ctc_encoder(model_type).head_name
    assert new.new_parameters == (f"{head}.bias", f"{head}.weight")
    assert ctc_head(new.model).weight.shape[0] == vocab_size
    assert not ctc_head(new.model).bias.any()
    same = load_checkpoint(folder, vocab_size=vocab_size, pad_token_id=5, seed=1)
    other = load_checkpoint(folder, vocab_size=vocab_size, pad_token_id=5, seed=2)
    assert torch.equal(ctc_head(same.model).weight, ctc_head(new.model).weight)
    assert not torch.equal(ctc_head(other.model).weight, ctc_head(new.model).weight)
    for name, value in base_encoder(new.model).state_dict().items():
        assert torch.equal(value, base_encoder(kept.model).state_dict()[name]), name


@pytest.mark.parametrize("model_type", ["wav2vec2", "hubert", "wavlm", "wav2vec2-bert"])
def test_a_self_supervised_checkpoint_needs_a_size(checkpoint_of, model_type, tmp_path):
    """Without head and tokenizer, as published ones are."""
    model, processor = load_ctc(checkpoint_of(model_type))
    base_encoder(model).save_pretrained(tmp_path)
    processor.feature_extractor.save_pretrained(tmp_path)
    name = ctc_encoder(model_type).pretrained_architectures[0]
    with pytest.raises(ConfigurationError, match=rf"no CTC head .*{name}.*vocab_size"):
        load_checkpoint(tmp_path)
    loaded = load_checkpoint(tmp_path, vocab_size=9, pad_token_id=0)
    assert type(loaded.processor).__name__ == ctc_encoder(model_type).feature_extractor_class
    assert set(loaded.new_parameters) == {"lm_head.bias", "lm_head.weight"}
    for key, value in base_encoder(model).state_dict().items():
        assert torch.equal(base_encoder(loaded.model).state_dict()[key], value), key


def test_another_type_is_refused_by_name(checkpoint_of, copy_of):
    with pytest.raises(ConfigurationError, match="type 'wav2vec2', but 'hubert' was asked for"):
        load_checkpoint(checkpoint_of("wav2vec2"), model_type="hubert")
    with pytest.raises(ConfigurationError, match="'hubert' was asked for"):
        load_checkpoint(checkpoint_of("wavlm"), model_type="ctc-hubert")
    folder = copy_of("wav2vec2")
    edit_config(folder, model_type="whisper")
    with pytest.raises(ConfigurationError, match="type 'whisper'.*wav2vec2, hubert"):
        load_checkpoint(folder)


def test_the_right_type_by_any_name_is_accepted(checkpoint_of, model_type):
    names = (model_type, ctc_encoder(model_type).architecture)
    for name in names:
        assert load_checkpoint(checkpoint_of(model_type), model_type=name).model is not None


def test_pickled_weights_are_refused_and_never_opened(copy_of, tmp_path):
    folder = copy_of("wav2vec2")
    (folder / "model.safetensors").unlink()
    proof = tmp_path / "executed"
    payload = f"cos\nsystem\n(S'touch {proof}'\ntR.".encode()
    (folder / "pytorch_model.bin").write_bytes(payload)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*pickles"):
        load_checkpoint(folder)
    assert not proof.exists()


def test_missing_files_are_named(copy_of, tmp_path):
    with pytest.raises(CheckpointError, match="no directory .*nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no directory"):
        load_checkpoint("./nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_checkpoint(tmp_path / "empty")
    folder = copy_of("hubert", "no-weights")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no weights.*safetensors"):
        load_checkpoint(folder)
    folder = copy_of("hubert", "no-extractor")
    (folder / "processor_config.json").unlink()
    with pytest.raises(CheckpointError, match="feature extractor"):
        load_checkpoint(folder)
    folder = copy_of("hubert", "bad-config")
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_checkpoint(folder)


def test_a_hub_id_out_of_reach_is_named():
    with pytest.raises(CheckpointError, match="someone/some-model.*Hub"):
        load_checkpoint("someone/some-model")


def test_missing_encoder_weights_are_an_error(copy_of, model_type):
    from safetensors.torch import load_file, save_file

    folder = copy_of(model_type)
    weights = load_file(folder / "model.safetensors")
    base = ctc_encoder(model_type).base_name
    lost = sorted(n for n in weights if n.startswith(f"{base}.") and n.endswith("weight"))[-1]
    short = {name: value for name, value in weights.items() if name != lost}
    save_file(short, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointMismatchError, match=lost):
        load_checkpoint(folder)
    wrong = {**weights, lost: torch.zeros(2)}
    save_file(wrong, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointMismatchError, match=lost):
        load_checkpoint(folder)


def test_a_missing_head_is_not_replaced_unasked(copy_of, model_type):
    from safetensors.torch import load_file, save_file

    folder = copy_of(model_type)
    head = ctc_encoder(model_type).head_name
    weights = load_file(folder / "model.safetensors")
    headless = {name: value for name, value in weights.items() if not name.startswith(head)}
    save_file(headless, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointMismatchError, match=head):
        load_checkpoint(folder)
    loaded = load_checkpoint(folder, vocab_size=30, pad_token_id=0)
    assert set(loaded.new_parameters) == {f"{head}.bias", f"{head}.weight"}


def test_code_in_a_checkpoint_is_never_run(copy_of, tmp_path):
    folder = copy_of("wav2vec2")
    proof = tmp_path / "executed"
    (folder / "evil.py").write_text(f"open({str(proof)!r}, 'w')\n")
    edit_config(folder, auto_map={"AutoConfig": "evil.Config", "AutoModelForCTC": "evil.Model"})
    assert type(load_checkpoint(folder).model).__name__ == "Wav2Vec2ForCTC"
    assert not proof.exists()


def test_settings_can_be_replaced(checkpoint_of, model_type):
    name = "dropout" if model_type == "parakeet_ctc" else "hidden_dropout"
    loaded = load_checkpoint(checkpoint_of(model_type), config_overrides={name: 0.37})
    assert getattr(base_encoder(loaded.model).config, name) == 0.37
    with pytest.raises(ConfigurationError, match="no setting 'hiden_size'.*hidden_size"):
        load_checkpoint(checkpoint_of(model_type), config_overrides={"hiden_size": 1})


def test_progress_bars_are_as_they_were(checkpoint_of, capfd):
    from transformers.utils import logging

    logging.enable_progress_bar()
    load_checkpoint(checkpoint_of("wav2vec2"))
    assert "Loading weights" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()

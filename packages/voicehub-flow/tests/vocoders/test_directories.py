"""Vocoders from directories, against other implementations of the same networks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError, ConfigurationError
from voicehub_flow.mel import MelSettings
from voicehub_flow.vocoders.directory import without_weight_norm
from voicehub_flow.vocoders.gan import load_bigvgan, load_hifigan
from voicehub_flow.vocoders.loading import load_vocoder
from voicehub_flow.vocoders.settings import VocoderSettings
from voicehub_flow.vocoders.vocos import load_vocos

VOCOS_MEL = MelSettings(sample_rate=8000, n_fft=64, hop_length=16, n_mels=10, pad_mode="reflect")


def _frames(count: int = 12, bins: int = 10, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, bins, generator=torch.Generator().manual_seed(seed)) - 2.0


def _write_vocos(directory: Path, padding: str = "center", **feature: Any) -> dict[str, Any]:
    import yaml

    mel = {"sample_rate": 8000, "n_fft": 64, "hop_length": 16, "n_mels": 10, **feature}
    config = {
        "feature_extractor": {
            "class_path": "vocos.feature_extractors.MelSpectrogramFeatures",
            "init_args": {**mel, "padding": padding},
        },
        "backbone": {
            "class_path": "vocos.models.VocosBackbone",
            "init_args": {
                "input_channels": 10,
                "dim": 8,
                "intermediate_dim": 16,
                "num_layers": 2,
            },
        },
        "head": {
            "class_path": "vocos.heads.ISTFTHead",
            "init_args": {"dim": 8, "n_fft": 64, "hop_length": 16, "padding": padding},
        },
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    return config


@pytest.mark.parametrize("padding", ["center", "same"])
@pytest.mark.filterwarnings("ignore")
def test_vocos_speaks_as_its_own_package_does(tmp_path: Path, padding: str) -> None:
    package = pytest.importorskip("vocos.pretrained")
    torch.manual_seed(0)
    _write_vocos(tmp_path, padding)
    theirs = package.Vocos.from_hparams(str(tmp_path / "config.yaml")).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    settings = VocoderSettings(name="vocos", path=str(tmp_path))
    ours = load_vocoder(settings, VOCOS_MEL)
    frames = _frames()
    expected = theirs.decode(frames.T[None])[0].clamp(-1, 1)
    wave = ours(frames)
    assert wave.shape == expected.shape
    torch.testing.assert_close(wave, expected, rtol=1e-4, atol=1e-5)
    assert ours.sampling_rate == 8000 and ours.unstated == ()
    assert len(ours.describe()["sha256"]) == 64


def _vocos_state(seed: int = 0) -> dict[str, torch.Tensor]:
    from voicehub_flow.vocoders.vocos import VocosNetwork

    torch.manual_seed(seed)
    return VocosNetwork(10, 8, 16, 2, 64, 16, "center").state_dict()


def test_other_frames_are_refused_with_both_values(tmp_path: Path) -> None:
    _write_vocos(tmp_path)
    save_file(_vocos_state(), tmp_path / "model.safetensors")
    settings = VocoderSettings(name="vocos", path=str(tmp_path))
    load_vocoder(settings, VOCOS_MEL)
    other = VOCOS_MEL.model_copy(update={"hop_length": 20, "scale": "slaney"})
    with pytest.raises(ConfigurationError) as error:
        load_vocoder(settings, other)
    assert "hop_length: model 20, vocoder 16" in str(error.value)
    assert "scale: model 'slaney', vocoder 'htk'" in str(error.value)
    assert "n_fft" not in str(error.value)
    contradicting = VocoderSettings(name="vocos", path=str(tmp_path), mel={"power": 2.0})
    with pytest.raises(ConfigurationError, match=r"vocoder\.mel\.power is 2\.0, but .* says 1\.0"):
        load_vocoder(contradicting, VOCOS_MEL)


def test_only_weights_are_read_and_they_must_fit(tmp_path: Path) -> None:
    _write_vocos(tmp_path)
    with pytest.raises(ConfigurationError, match="holds no weights"):
        load_vocos(str(tmp_path))
    code = tmp_path / "pytorch_model.bin"

    class Evil:
        def __reduce__(self) -> Any:
            return print, ("executed",)

    code.write_bytes(pickle.dumps({"state_dict": Evil()}, protocol=2))
    with pytest.raises(CheckpointCorruptError, match="more than weights"):
        load_vocos(str(tmp_path))
    code.unlink()
    state = _vocos_state()
    del state["head.out.bias"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointMismatchError, match=r"head\.out\.bias"):
        load_vocos(str(tmp_path))
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:100])
    with pytest.raises(CheckpointCorruptError, match="damaged"):
        load_vocos(str(tmp_path))


def test_a_configuration_cannot_name_other_classes(tmp_path: Path) -> None:
    import yaml

    config = _write_vocos(tmp_path)
    config["head"]["class_path"] = "os.system"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigurationError, match="head is a system"):
        load_vocos(str(tmp_path))
    with pytest.raises(ConfigurationError, match="is no directory"):
        load_vocos(str(tmp_path / "nowhere"))


# -- HiFi-GAN --------------------------------------------------------------------------------

SIZES: dict[str, Any] = {
    "upsample_rates": [4, 2],
    "upsample_kernel_sizes": [8, 4],
    "upsample_initial_channel": 8,
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 2]],
}
CLASSIC: dict[str, Any] = {
    **SIZES,
    "resblock": "1",
    "num_mels": 10,
    "sampling_rate": 8000,
    "n_fft": 64,
    "hop_size": 8,
    "win_size": 32,
    "fmin": 0,
    "fmax": 3600,
}
CLASSIC_MEL = MelSettings(
    sample_rate=8000,
    n_fft=64,
    win_length=32,
    hop_length=8,
    n_mels=10,
    f_max=3600,
    scale="slaney",
    norm="slaney",
)


@pytest.fixture(scope="module")
def reference() -> Any:
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    torch.manual_seed(3)
    model = SpeechT5HifiGan(SpeechT5HifiGanConfig(model_in_dim=10, sampling_rate=8000, **SIZES))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    model.mean.copy_(torch.linspace(-1, 1, 10))
    model.scale.copy_(torch.linspace(0.5, 2, 10))
    return model.eval()


def test_hifigan_of_transformers(tmp_path: Path, reference: Any, caplog: Any) -> None:
    reference.save_pretrained(tmp_path)
    frames = _frames()
    settings = VocoderSettings(name="hifigan", path=str(tmp_path))
    vocoder = load_vocoder(settings, CLASSIC_MEL)
    with torch.no_grad():  # its frames are common logarithms
        expected = reference(frames / torch.log(torch.tensor(10.0)))
    torch.testing.assert_close(vocoder(frames), expected, rtol=1e-4, atol=1e-5)
    assert "does not say its n_fft, win_length, f_min" in caplog.text
    assert vocoder.unstated[0] == "n_fft"
    front_end = {
        "sampling_rate": 8000, "win_length": 4, "hop_length": 1, "num_mel_bins": 10,
        "fmin": 0, "fmax": 3600,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(front_end))
    with pytest.raises(ConfigurationError, match="n_fft: model 64, vocoder 32"):
        load_vocoder(settings, CLASSIC_MEL)
    assert load_hifigan(str(tmp_path)).unstated == ()


def test_classic_hifigan_with_weight_norm(tmp_path: Path, reference: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CLASSIC))
    state = {}
    for name, tensor in reference.state_dict().items():
        if name in ("mean", "scale"):
            continue
        name = name.replace("upsampler.", "ups.")
        if name.endswith(".weight"):
            norm = tensor.flatten(1).norm(dim=1).view(-1, 1, 1)
            state[f"{name}_g"], state[f"{name}_v"] = norm, 3.0 * tensor
        else:
            state[name] = tensor
    torch.save({"generator": state}, tmp_path / "g_02500000")
    torch.save({"generator": {}}, tmp_path / "g_00100000")  # an older one
    vocoder = load_vocoder(VocoderSettings(name="hifigan", path=str(tmp_path)), CLASSIC_MEL)
    frames = _frames()
    with torch.no_grad():
        expected = reference(frames * reference.scale + reference.mean)
    torch.testing.assert_close(vocoder(frames), expected, rtol=1e-4, atol=1e-5)
    assert len(vocoder(frames)) == 12 * 8
    (tmp_path / "config.json").write_text(json.dumps({**CLASSIC, "hop_size": 16}))
    with pytest.raises(ConfigurationError, match="8 samples a frame, but the hop is 16"):
        load_hifigan(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({**CLASSIC, "activation": "snake"}))
    with pytest.raises(ConfigurationError, match=r"vocoder\.name=bigvgan"):
        load_hifigan(str(tmp_path))


def test_residual_blocks_of_the_second_kind(tmp_path: Path) -> None:
    from voicehub_flow.vocoders.gan import _classic_sizes
    from voicehub_flow.vocoders.generator import Generator

    config = {**CLASSIC, "resblock": "2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    network = Generator(_classic_sizes(config, tmp_path))
    assert "resblocks.0.convs.1.weight" in network.state_dict()
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    assert load_hifigan(str(tmp_path))(_frames()).shape == (96,)


def test_both_spellings_of_weight_norm() -> None:
    torch.manual_seed(0)
    conv = nn.Conv1d(3, 4, 5)
    expected = conv.weight.detach().clone()
    parametrised = nn.utils.parametrizations.weight_norm(conv)
    plain = without_weight_norm(parametrised.state_dict())
    assert sorted(plain) == ["bias", "weight"]
    torch.testing.assert_close(plain["weight"], expected)


# -- BigVGAN ---------------------------------------------------------------------------------


def test_bigvgan_against_that_of_transformers(tmp_path: Path) -> None:
    from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as omni
    from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import (
        Qwen2_5OmniBigVGANConfig,
    )

    torch.manual_seed(4)
    sizes = {**SIZES, "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]]}
    config = Qwen2_5OmniBigVGANConfig(mel_dim=10, **sizes)
    theirs = omni.Qwen2_5OmniToken2WavBigVGANModel(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    torch.save({"generator": theirs.state_dict()}, tmp_path / "bigvgan_generator.pt")
    ours = {
        **{k: v for k, v in CLASSIC.items() if k != "resblock"},
        **sizes,
        "resblock": "1",
        "activation": "snakebeta",
        "snake_logscale": True,
        "use_bias_at_final": False,
        "use_tanh_at_final": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(ours))
    vocoder = load_vocoder(VocoderSettings(name="bigvgan", path=str(tmp_path)), CLASSIC_MEL)
    theirs.process_mel_spectrogram = lambda mel: mel  # its front end has a scale of its own
    frames = _frames()
    with torch.no_grad():
        expected = theirs(frames.T[None])
    torch.testing.assert_close(vocoder(frames), expected.flatten(), rtol=1e-4, atol=1e-5)
    (tmp_path / "config.json").write_text(json.dumps({**ours, "activation": "sine"}))
    with pytest.raises(ConfigurationError, match="unknown activation 'sine'"):
        load_bigvgan(str(tmp_path))

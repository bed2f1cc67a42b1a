"""Tiny random checkpoints, made once a session, and models over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.data import AsrLlmCollator, AsrLlmItem
from voicehub_asr_llm.model import AsrLlm
from voicehub_asr_llm.testing import make_tiny_decoder
from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

TRANSFORMERS_ENCODERS = (
    "wav2vec2", "hubert", "wavlm", "wav2vec2-bert", "whisper", "parakeet_ctc",
    "granite_speech5_ctc",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Directory of a tiny encoder by type; ``recogniser`` is a model that VoiceHub has trained."""
    made: dict[str, Any] = {}

    def get(kind: str = "granite_speech5_ctc"):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            if kind == "recogniser":
                pytest.importorskip("voicehub_asr_ctc", reason="the recogniser's own package")
                _recogniser().save_pretrained(folder)
            elif kind == "group-norm":
                make_tiny_encoder_checkpoint(
                    folder, "wav2vec2", feat_extract_norm="group", do_stable_layer_norm=False
                )
            else:
                make_tiny_encoder_checkpoint(folder, kind)
            made[kind] = folder
        return made[kind]

    return get


def _recogniser():
    """By the entry point that any family has, as the model asks for it."""
    from voicehub.testing.cases import load_case

    torch.manual_seed(0)
    case = load_case("ctc-logmel")
    model = case.wrapper(0.0)
    model.load()
    return model


@pytest.fixture(scope="session")
def decoder(tmp_path_factory):
    """Directory of a tiny decoder by type and template."""
    made: dict[Any, Any] = {}

    def get(kind: str = "llama", template: str = "chatml", **settings):
        key = (kind, template, *sorted(settings.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[key] = make_tiny_decoder(folder, kind, template=template, **settings)
        return made[key]

    return get


@pytest.fixture(scope="session")
def settings(encoder, decoder):
    """The model section of a run over tiny parts, as a mapping."""

    def make(encoder_kind="granite_speech5_ctc", decoder_kind="llama", **changes):
        values: dict[str, Any] = {
            "encoder": {"path": str(encoder(encoder_kind))},
            "decoder": {"path": str(decoder(decoder_kind))},
            "projector": {"stride": 2, "hidden_size": 24},
        }
        for name, value in changes.items():
            part, _, key = name.partition("__")
            if key:
                values[part][key] = value
            else:
                values[part] = value
        if values.get("recipe", "lora") == "lora":
            values["decoder"].setdefault("lora", {"rank": 2, "alpha": 4})
        return values

    return make


@pytest.fixture(scope="session")
def model_of(settings):
    """A wrapper over tiny parts, loaded for training."""

    def make(*parts, load=True, **changes) -> AsrLlm:
        config = AsrLlmModelConfig.model_validate(settings(*parts, **changes))
        model = AsrLlm.from_config(config)
        if load:
            # As the adapter has it: batch statistics of the encoder never train.
            model.load_for_training().network.eval()
        return model

    return make


def noise(samples: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return 0.1 * generator.standard_normal(samples).astype(np.float32)


@pytest.fixture(scope="session")
def waves():
    """Noise of so many samples, by a seed."""
    return noise


@pytest.fixture(scope="session")
def items_of():
    """Items of noise with transcripts, for a model."""

    def make(model: AsrLlm, *texts: str, samples=(9000, 6500, 12000, 7000)) -> list[AsrLlmItem]:
        made = []
        for place, text in enumerate(texts):
            audio = noise(samples[place % len(samples)], place)
            prepared = model.front_end.prepare(audio)
            labels = model.chat.encode(text).ids
            made.append(AsrLlmItem(f"item-{place}", prepared, labels, "plain", text, 0.5, None))
        return made

    return make


@pytest.fixture(scope="session")
def collate():
    """A batch of items without what is for people alone."""

    def make(model: AsrLlm, items, **options) -> dict[str, Any]:
        stride = model.config.projector.stride
        batch = AsrLlmCollator(model.front_end, model.chat, stride, **options)(items)
        batch.pop("batch_info")
        return batch

    return make


@pytest.fixture(scope="session")
def descend():
    """A few steps of gradient descent; returns the losses."""

    def run(model: AsrLlm, batch, steps: int = 1, rate: float = 0.1) -> list[float]:
        losses = []
        trained = [p for p in model.network.parameters() if p.requires_grad]
        for _ in range(steps):
            found, projected = model.network.ask(batch)
            loss = found.total / found.count
            if projected.costs is not None:
                loss = loss + projected.costs.mean()
            gradients = torch.autograd.grad(loss, trained, allow_unused=True)
            with torch.no_grad():
                for parameter, gradient in zip(trained, gradients, strict=True):
                    if gradient is not None:
                        parameter -= rate * gradient
            losses.append(float(loss.detach()))
        return losses

    return run

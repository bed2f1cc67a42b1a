"""The whole objective, and its gradients, against the reference written from the paper."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.testing.probe import split_batch
from voicehub_vits.conformance import VitsCase, tiny_config, tiny_wrapper
from voicehub_vits.data.voices import Voices


def _reference() -> Any:
    path = Path(__file__).parent / "reference" / "vits_paper.py"
    spec = importlib.util.spec_from_file_location("vits_paper", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vits_paper"] = module
    spec.loader.exec_module(module)
    return module


paper = _reference()
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
RECIPES = ("stochastic", "conditioned")


def _adapter(recipe: str, dtype: torch.dtype) -> Any:
    if recipe == "stochastic":
        wrapper = tiny_wrapper(tiny_config(discriminator={"width": 0.01}))  # all six
    else:
        from voicehub_vits.conformance import ARCHITECTURE

        sizes = {"use_stochastic_duration_prediction": False, "speaker_embedding_size": 6}
        config = tiny_config(
            architecture={**ARCHITECTURE, **sizes},
            duration_discriminator={"channels": 8},
            language_conditioning=True,
        )
        pairs = ((0, 0), (1, 1), (2, 0))
        wrapper = tiny_wrapper(config, Voices(("a", "b", "c"), ("de", "en"), pairs))
    adapter = AutoTrainingAdapter.from_model(wrapper)
    adapter.setup()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in adapter.module.parameters():  # also what starts at zero
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((0.05 * noise).to(parameter.dtype))
    adapter.module.to(dtype)
    adapter.train_mode()
    return adapter


def _items(recipe: str) -> list[Any]:
    case = VitsCase()
    items = [case.item(length, seed) for length, seed in ((2, 1), (3, 2))]
    if recipe == "conditioned":
        items = [
            item._replace(speaker=number + 1, language=1 - number)
            for number, item in enumerate(items)
        ]
    return items


def _expected(adapter: Any, items: list[Any], batch: Any) -> tuple[dict[str, Any], Any]:
    """Mean terms by phase, and the parameters that they hang on, in float64."""

    def parameters(module: Any) -> dict[str, torch.Tensor]:
        state = module.state_dict()
        return {k: v.detach().double().clone().requires_grad_() for k, v in state.items()}

    wrapper = adapter.model
    durations = wrapper.duration_discriminator
    setting = paper.Setting(
        parameters(wrapper.model),
        parameters(wrapper.discriminator),
        None if durations is None else parameters(durations),
        wrapper.vits_config,
        wrapper.acoustic,
        list(wrapper.config.discriminator.periods),
    )
    totals: dict[str, dict[str, torch.Tensor]] = {}
    for row, item in enumerate(items):
        frames, tokens = item.prepared.frames, len(item.input_ids)
        utterance = paper.Utterance(
            torch.tensor(item.input_ids),
            item.prepared.audio.double(),
            batch["segment_starts"][row],
            batch["posterior_noise"][row, :, :frames].double(),
            batch["duration_noise"][row, :, :tokens].double(),
            item.speaker,
            item.language,
        )
        for phase, found in paper.terms(setting, utterance).items():
            into = totals.setdefault(phase, {})
            for name, value in found.items():
                into[name] = into.get(name, 0.0) + value / len(items)
    return totals, setting


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_terms_and_gradients_of_every_phase(
    recipe: str, dtype: torch.dtype, references: dict[str, Any]
) -> None:
    adapter, items = _adapter(recipe, dtype), _items(recipe)
    whole = VitsCase().collate(items)
    if dtype is torch.float64:
        # What the reference hears in float64, the model must too.
        whole["spectrogram"] = _spectrogram(adapter, items).to(dtype)
    inputs, info, _ = split_batch(whole, dtype)
    if recipe not in references:
        references[recipe] = _expected(adapter, items, whole)
    totals, setting = references[recipe]
    parts = {"discriminator": setting.discriminator, "generator": setting.generator}
    if setting.durations is not None:
        parts["duration_discriminator"] = setting.durations
    assert set(totals) == set(parts) == {phase.name for phase in adapter.phases}
    modules = {
        "discriminator": adapter.model.discriminator,
        "generator": adapter.model.model,
        "duration_discriminator": adapter.model.duration_discriminator,
    }
    limit = TOLERANCE[dtype]
    for phase in adapter.phases:
        context = TrainingContext(phase, inputs, 0, 0.0, True, info)
        with adapter.phase_boundaries(phase):
            output = adapter.execute_training_phase(context)
            adapter.module.zero_grad(set_to_none=True)
            output.loss.backward()
        for name, value in totals[phase.name].items():
            close = pytest.approx(float(value), rel=limit)
            assert float(output.losses[name]) == close, f"{phase.name}/{name}"
        weights = adapter.weights.model_dump()
        total = sum(
            _weight(phase.name, name, weights) * value for name, value in totals[phase.name].items()
        )
        assert float(output.loss) == pytest.approx(float(total), rel=limit)
        own = parts[phase.name]
        gradients = torch.autograd.grad(
            total, list(own.values()), allow_unused=True, retain_graph=True
        )
        _compare(phase.name, modules[phase.name], dict(zip(own, gradients, strict=True)), limit)


def _weight(phase: str, name: str, weights: dict[str, float]) -> float:
    return weights[phase] if phase in weights else weights[name]


def _compare(phase: str, module: Any, expected: dict[str, Any], limit: float) -> None:
    norm = sum(float(g.square().sum()) for g in expected.values() if g is not None) ** 0.5
    assert norm > 0
    for name, parameter in module.named_parameters():
        wanted = expected[name]
        if wanted is None or not wanted.any():
            assert parameter.grad is None or float(parameter.grad.norm()) <= limit * norm, name
            continue
        gap = float((parameter.grad.double() - wanted).norm())
        # Each tensor to its own size; what is a thousandth of the whole is rounding in float32.
        floor = 1e-3 * norm if limit > 1e-8 else 1e-9 * norm
        assert gap <= limit * max(float(wanted.norm()), floor), f"{phase}: {name}"


def _spectrogram(adapter: Any, items: list[Any]) -> torch.Tensor:
    frames = max(item.prepared.frames for item in items)
    rows = []
    for item in items:
        linear = adapter.spectrogram.linear(item.prepared.audio.double()[None])[0]
        rows.append(torch.nn.functional.pad(linear, (0, frames - linear.shape[1])))
    return torch.stack(rows)


def test_the_spectrogram_is_the_reference_s() -> None:
    adapter = _adapter("stochastic", torch.float64)
    (item, _) = _items("stochastic")
    audio = item.prepared.audio.double()
    ours, theirs = (
        adapter.spectrogram.linear(audio[None])[0],
        paper.magnitudes(audio, adapter.model.acoustic),
    )
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    mel = adapter.spectrogram(audio[None])[0]
    assert torch.allclose(mel, paper.log_mel(audio, adapter.model.acoustic), rtol=1e-10, atol=1e-12)

"""One forward of the generator a step, recipes by settings, warm starts that say what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.testing.probe import split_batch
from voicehub_vits import adapter as adapter_module
from voicehub_vits.conformance import ARCHITECTURE, VitsCase, tiny_config, tiny_wrapper
from voicehub_vits.model import VitsTTS
from voicehub_vits.testing import ACOUSTIC

CASE = VitsCase()


def ready(**settings: Any) -> Any:
    adapter = AutoTrainingAdapter.from_model(tiny_wrapper(tiny_config(**settings)))
    adapter.setup()
    adapter.train_mode()
    return adapter


def batch(seed: int = 0) -> tuple[Any, Any]:
    inputs, info, _ = split_batch(CASE.collate([CASE.item(3, seed), CASE.item(4, seed + 1)]))
    return inputs, info


def run(adapter: Any, name: str, inputs: Any, info: Any, step: int = 0) -> Any:
    phase = adapter.spec.get_phase(name)
    with adapter.phase_boundaries(phase):
        output = adapter.execute_training_phase(
            TrainingContext(phase, inputs, step, 0.0, True, info)
        )
        output.loss.backward()
    return output


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every forward of the generator."""
    counted: list[int] = []
    original = adapter_module.render

    def count(*arguments: Any) -> Any:
        counted.append(1)
        return original(*arguments)

    monkeypatch.setattr(adapter_module, "render", count)
    return counted


def gradients(adapter: Any) -> dict[str, torch.Tensor]:
    found = {
        name: p.grad.clone() for name, p in adapter.module.named_parameters() if p.grad is not None
    }
    adapter.module.zero_grad(set_to_none=True)
    return found


def test_the_generator_phase_goes_on_from_the_discriminator_s_forward(forwards: list[int]) -> None:
    adapter, fresh = ready(), ready()
    inputs, info = batch()
    run(adapter, "discriminator", inputs, info)
    judged = gradients(adapter)
    assert all(name.startswith("discriminator") for name in judged)
    reused = run(adapter, "generator", inputs, info)
    assert len(forwards) == 1
    own = gradients(adapter)
    assert all(name.startswith("model") for name in own)
    again = run(fresh, "generator", inputs, info)
    assert len(forwards) == 2
    assert torch.equal(reused.loss, again.loss)
    theirs = gradients(fresh)
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[name], theirs[name]) for name in own)


@pytest.mark.parametrize("change", ["weights", "batch", "mode"])
def test_a_forward_of_something_else_is_not_taken_over(forwards: list[int], change: str) -> None:
    adapter = ready()
    inputs, info = batch()
    run(adapter, "discriminator", inputs, info)
    if change == "weights":
        with torch.no_grad():
            next(adapter.model.model.decoder.parameters()).mul_(1.01)
    elif change == "batch":
        inputs, info = batch(5)
    else:
        adapter.eval_mode()
    run(adapter, "generator", inputs, info)
    assert len(forwards) == 2


def test_what_the_generator_phase_freezes_is_frozen_in_the_forward_it_takes_over() -> None:
    adapter = ready()
    frozen = list(adapter.model.model.flow.parameters())
    adapter.freeze_in_phase("generator", frozen, [adapter.model.model.flow])
    inputs, info = batch()
    modes: list[bool] = []
    hook = adapter.model.model.flow.register_forward_hook(
        lambda module, *_: modes.append(module.training)
    )
    run(adapter, "discriminator", inputs, info)
    run(adapter, "generator", inputs, info)
    hook.remove()
    assert modes == [False]
    assert all(p.grad is None for p in frozen)
    assert all(p.requires_grad for p in frozen)
    assert adapter.model.model.flow.training


def test_the_duration_discriminator_is_a_phase_of_its_own(forwards: list[int]) -> None:
    adapter = ready(duration_discriminator={"channels": 8})
    names = [phase.name for phase in adapter.phases]
    assert names == ["discriminator", "duration_discriminator", "generator"]
    assert set(adapter.routes) == set(names)
    inputs, info = batch()
    for name in names:
        output = run(adapter, name, inputs, info)
        assert torch.isfinite(output.loss)
        prefix = {"generator": "model"}.get(name, name)
        found = gradients(adapter)
        assert found and all(key.split(".")[0] == prefix for key in found)
    assert len(forwards) == 1
    assert "duration_adversarial" in output.losses


def test_frozen_parts_leave_the_routes() -> None:
    adapter = ready(freeze=["posterior_encoder", "text_encoder"])
    trained = {name.split(".")[1] for name, _ in adapter.routes["generator"]}
    assert trained == {"flow", "decoder", "duration_predictor"}
    assert not adapter.model.model.text_encoder.training


def test_a_warm_start_of_the_generator_says_so(checkpoint: Path, tmp_path: Path) -> None:
    model = VitsTTS(str(checkpoint), generator_only=True)
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    adapter.train_mode()
    assert [phase.name for phase in adapter.phases] == ["generator"]
    assert model.discriminator is None
    inputs, info = batch()
    del inputs["segments"], inputs["segment_starts"]
    output = run(adapter, "generator", inputs, info)
    assert set(output.losses) == {"duration", "kl"}
    trained = {name.split(".")[0] for name in gradients(adapter)}
    assert trained == {"text_encoder", "flow", "duration_predictor"}
    adapter.save_pretrained(tmp_path / "warm", native_export=True)
    manifest = json.loads((tmp_path / "warm" / "training_recipe.json").read_text())
    assert manifest["full_vits_fine_tuning"] is False
    assert manifest["native_export"] == "component-weight-warm-start"
    assert manifest["trained_components"] == ["text_encoder", "flow", "duration_predictor"]
    assumed = manifest["assumed_acoustic_config"]
    assert (assumed["filter_length"], assumed["hop_length"], assumed["win_length"]) == (64, 16, 64)


def test_artifacts_hold_both_sides_and_start_further_runs(tmp_path: Path) -> None:
    adapter = ready()
    with torch.no_grad():
        for parameter in adapter.module.parameters():
            parameter.add_(0.01)
    adapter.save_pretrained(tmp_path / "artifact", native_export=False)
    again = AutoTrainingAdapter.from_model(VitsTTS(tmp_path / "artifact"))
    again.setup()
    ours, theirs = adapter.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    from voicehub.models.initial import read_initial_weights

    fresh = tiny_wrapper(tiny_config(), seed=9)
    fresh.start_from(read_initial_weights(tmp_path / "artifact", model_type="vits"))
    started = AutoTrainingAdapter.from_model(fresh)
    started.setup()
    theirs = started.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_new_voices_in_a_checkpoint_s_place(voices_checkpoint: Path, run_config: Any) -> None:
    from voicehub_vits.experiment import build_experiment

    settings = {"path": str(voices_checkpoint), "training_acoustic_config": ACOUSTIC}
    model = build_experiment(run_config({**settings, "speaker_table": "new"})).model
    model.load_for_training()
    assert model.voices.speakers == ("anna", "bert")
    assert model.model.embed_speaker.weight.shape == (2, 4)
    kept = build_experiment(run_config(settings)).model
    kept.load_for_training()
    assert kept.voices.speakers == ("anna", "bert", "2")
    assert torch.equal(
        kept.model.flow.flows[0].conv_pre.weight, model.model.flow.flows[0].conv_pre.weight
    )


def test_a_model_from_nothing_starts_as_published() -> None:
    adapter = ready()
    model = adapter.model.model
    assert all(not flow.conv_post.weight.any() for flow in model.flow.flows)
    assert all(not flow.conv_proj.weight.any() for flow in model.duration_predictor.flows[1:])
    wave = torch.tanh(model.decoder(torch.randn(1, ARCHITECTURE["flow_size"], 20)))
    assert 1e-3 < wave.detach().std().item() < 0.9
    again = ready()
    pairs = zip(adapter.module.parameters(), again.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)

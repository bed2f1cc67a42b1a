"""Running phases: selection, inputs, prediction, custom losses, fallbacks, cost."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.adapters.plain import ModuleAdapter
from voicehub.specs.phase import TrainingPhaseSpec


def phase(name, **fields):
    return TrainingPhaseSpec(name, **fields)


def test_due_phases_follow_the_schedule_in_the_order_declared(make_adapter, regressor):
    phases = (phase("b", frequency=2), phase("a"), phase("c", frequency=2, offset=1))
    adapter = make_adapter({"model": regressor}, phases)
    due = [[item.name for item in adapter.due_phases(step)] for step in range(3)]
    assert due == [["b", "a"], ["a", "c"], ["b", "a"]]


def test_selecting_a_phase(make_adapter, regressor):
    adapter = make_adapter({"model": regressor}, (phase("a"), phase("b")))
    assert adapter.select_phase("b").name == "b"
    assert adapter.select_phase(adapter.phases[0]).name == "a"
    with pytest.raises(ValueError, match=r"Unknown training phase 'aa'.*Did you mean 'a'"):
        adapter.select_phase("aa")


def test_the_evaluation_phase(make_adapter, regressor):
    sides = (
        phase("d", optimizer_names=("x",), kind="discriminator"),
        phase("g", optimizer_names=("x",), kind="generator"),
    )
    adapter = make_adapter({"model": regressor}, sides)
    assert adapter.select_evaluation_phase().name == "g"
    assert adapter.select_evaluation_phase({"training_phase": "d"}).name == "d"
    declared = make_adapter({"model": regressor}, sides, default_phase="d")
    assert declared.select_evaluation_phase({"x": 1}).name == "d"


def test_outputs_carry_what_the_contract_names(make_adapter, regressor, run, batch):
    one = phase("main", component_paths=("model",), optimizer_names=("all",))
    adapter = make_adapter({"model": regressor}, (one,))
    output = run(adapter, "main", batch)
    assert isinstance(output, TTSTrainingOutput)
    assert output.training_phase == "main"
    assert output.optimizer_names == ("all",)
    assert output.num_items == 8
    assert output.metadata == {
        "model_type": "toy",
        "training_family": "toys",
        "training_support": "native",
        "training_phase": "main",
        "optimizer_names": ("all",),
    }
    recogniser = make_adapter({"model": regressor}, task="automatic-speech-recognition")
    output = run(recogniser, "default", batch)
    assert type(output) is SpeechTrainingOutput


def test_model_inputs_aliases_and_required_inputs(make_adapter, regressor, run, batch):
    one = phase("main", input_aliases={"features": "x"}, required_inputs=("features", "labels"))
    adapter = make_adapter({"model": regressor}, (one,))
    regressor.eval()
    nested = {
        "model_inputs": {"features": batch["x"]},
        "labels": batch["labels"],
        "training_phase": "main",
    }
    assert run(adapter, "main", nested).loss == regressor(**batch)["loss"]
    assert set(nested) == {"model_inputs", "labels", "training_phase"}
    with pytest.raises(ValueError, match="requires features"):
        run(adapter, "main", {"labels": batch["labels"]})


def test_detached_inputs_carry_no_gradient_back(make_adapter, regressor, run, batch):
    source = batch["x"].clone().requires_grad_(True)
    inputs = {"x": source * 1.0, "labels": batch["labels"]}
    adapter = make_adapter({"model": regressor}, (phase("main", detach_inputs=("x",)),))
    run(adapter, "main", inputs).loss.backward()
    assert source.grad is None
    assert inputs["x"].requires_grad


def test_prediction_has_no_gradient_and_needs_no_labels(make_adapter, regressor, batch):
    adapter = make_adapter({"model": regressor})
    adapter.eval_mode()
    context = TrainingContext(adapter.phases[0], {"x": batch["x"]}, is_training=False)
    output = adapter.execute_prediction_phase(context)
    assert output.loss is None
    assert not output.logits.requires_grad
    labelled = adapter.execute_prediction_phase(context.with_inputs(batch))
    assert labelled.loss is not None
    assert torch.is_grad_enabled()


def test_forward_returns_raw_outputs_for_a_custom_loss(make_adapter, regressor, batch):
    adapter = make_adapter({"model": regressor})
    raw = adapter.forward({"x": batch["x"]}, adapter.phases[0])
    assert isinstance(raw, dict)
    assert set(raw) == {"logits"}
    assert raw["logits"].requires_grad


def test_forward_for_a_custom_loss_keeps_the_boundaries(make_adapter, regressor, batch):
    one = phase("main", frozen_component_paths=("model.head",))
    adapter = make_adapter({"model": regressor}, (one,))
    raw = adapter.forward({"x": batch["x"]}, adapter.phases[0])
    raw["logits"].sum().backward()
    assert regressor.head.weight.grad is None
    assert regressor.encoder[0].weight.grad is not None


def test_the_models_own_input_hook_runs_and_its_tensors_are_moved(make_adapter, regressor, run):
    adapter = make_adapter({"model": regressor}, setup=False)
    adapter.model.prepare_training_inputs = lambda batch: {
        "x": batch["raw"] * 2,
        "labels": torch.zeros(8),
    }
    adapter.setup()
    moved = []

    def move(inputs):
        moved.append(sorted(inputs))
        return inputs

    adapter.move_inputs = move
    assert run(adapter, "default", {"raw": torch.randn(8, 4)}).loss.requires_grad
    assert moved == [["labels", "x"]]


def test_an_objective_of_ones_own_sees_phase_and_context(make_adapter, regressor, batch):
    seen = []

    class Own(TrainingAdapter):
        def training_step_loss(self, inputs, phase):
            seen.append((phase.name, self.context.step, self.context.metadata["ids"]))
            raw = self.forward_component(inputs, phase)
            return {"loss": raw["loss"] * 3, "num_items": 2}

    adapter = make_adapter({"model": regressor}, cls=Own)
    regressor.eval()
    context = TrainingContext(adapter.phases[0], batch, step=5, metadata={"ids": ["a"]})
    output = adapter.execute_training_phase(context)
    assert output.loss == regressor(**batch)["loss"] * 3
    assert output.num_items == 2
    assert seen == [("default", 5, ["a"])]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, x):
        return {"logits": self.net(x)}


def test_a_named_fallback_runs_and_keeps_its_labels_from_the_forward(make_adapter, run):
    model = Classifier()
    adapter = make_adapter({"model": model}, fallback_objective="classification")
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, -100, 1])
    output = run(adapter, "default", {"x": x, "labels": labels})
    expected = torch.nn.functional.cross_entropy(model(x)["logits"], labels)
    torch.testing.assert_close(output.loss, expected)
    assert output.num_items == 4
    context = TrainingContext(adapter.phases[0], {"x": x}, is_training=False)
    assert adapter.execute_prediction_phase(context).loss is None


def test_a_native_loss_comes_before_the_fallback(make_adapter, regressor, run, batch):
    adapter = make_adapter({"model": regressor}, fallback_objective="regression_loss")
    regressor.eval()
    assert run(adapter, "default", batch).loss == regressor(**batch)["loss"]


def test_without_a_named_fallback_a_missing_loss_is_an_error(make_adapter, run):
    adapter = make_adapter({"model": Classifier()})
    with pytest.raises(ValueError, match="no generic fallback"):
        run(adapter, "default", {"x": torch.randn(5, 4)})


class Returns(nn.Module):
    """Computes one loss and returns it in the form asked for."""

    def __init__(self, form):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.form = form

    def forward(self, x, y):
        return self.form(((self.weight * x - y) ** 2).mean())


@pytest.mark.parametrize(
    "form",
    [
        lambda loss: loss,
        lambda loss: (loss, "rest"),
        lambda loss: {"loss": loss},
        lambda loss: SpeechTrainingOutput(loss=loss),
    ],
)
@pytest.mark.parametrize("positional", [False, True])
def test_plain_modules_train_with_mappings_and_tuples(form, positional, run):
    adapter = ModuleAdapter(Returns(form))
    adapter.setup()
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])
    inputs = [x, y] if positional else {"x": x, "y": y}
    assert run(adapter, "default", inputs).loss.item() == pytest.approx(2.5)
    assert adapter.data_collator() is None
    assert adapter.module is adapter.model
    assert list(adapter.routes) == ["default"]
    assert adapter.identity["model_type"] == "Returns"


def test_a_module_of_one_tensor_input():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return (self.weight * x).mean()

    adapter = ModuleAdapter(Mean())
    adapter.setup()
    output = adapter.execute_training_phase(TrainingContext(adapter.phases[0], torch.ones(2)))
    assert output.loss.item() == 1.0


def test_plain_adapters_refuse_what_is_no_module():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        ModuleAdapter(object())


def test_a_transformers_recogniser_trains_as_a_plain_module(run):
    transformers = pytest.importorskip("transformers")
    config = transformers.Wav2Vec2Config(
        vocab_size=6,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.0,
    )
    adapter = ModuleAdapter(transformers.Wav2Vec2ForCTC(config))
    adapter.setup()
    inputs = {"input_values": torch.randn(2, 800), "labels": torch.tensor([[1, 2], [3, -100]])}
    output = run(adapter, "default", inputs)
    output.loss.backward()
    assert output.logits.shape[:2] == (2, 79)
    adapter.gradient_checkpointing_enable()
    adapter.train_mode()
    again = run(adapter, "default", inputs)
    again.loss.backward()
    assert any(
        layer.gradient_checkpointing
        for layer in adapter.model.modules()
        if hasattr(layer, "gradient_checkpointing")
    )


def test_a_simple_phase_costs_a_handful_of_calls(batch):
    """Counted, not timed: the adapter may add at most twenty Python calls to the forward."""

    class Cheap(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x, labels):
            return {"loss": self.weight}

    adapter = ModuleAdapter(Cheap())
    adapter.setup()
    context = TrainingContext(adapter.phases[0], batch)

    def calls(function):
        count = 0

        def trace(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(trace)
        try:
            function()
        finally:
            sys.setprofile(None)
        return count

    bare = calls(lambda: adapter.model(**batch))
    ours = calls(lambda: adapter.execute_training_phase(context))
    assert ours - bare <= 20, (ours, bare)

"""Plans in a Trainer: order, checkpoints, resume, export, and torch.compile."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointMismatchError, ConfigurationError, OptimizationError
from voicehub.optimization import OptimizationContext, OptimizationPlan, TorchCompilePass
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3, 4)
        self.output = nn.Linear(4, 1)

    def forward(self, x: Any, y: Any) -> dict[str, Any]:
        predicted = self.output(torch.tanh(self.hidden(x))).squeeze(-1)
        return {"loss": (predicted - y).square().mean()}


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def trainer_of(tmp_path: Any, model: nn.Module, plan: Any, **options: Any) -> Trainer:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 3, generator=generator)
    settings: dict[str, Any] = {
        "output_dir": str(tmp_path / options.pop("name", "run")),
        "use_cpu": True,
        "max_steps": 4,
        "save_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.05,
        **options.pop("settings", {}),
    }
    return Trainer(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=[{"x": row, "y": row.sum()} for row in x],
        optimization_plan=plan,
        **options,
    )


def test_a_changed_topology_trains_saves_resumes_and_exports(passes: Any, tmp_path: Any) -> None:
    model = net()
    trainer = trainer_of(tmp_path, model, OptimizationPlan([passes.LowRank()]))
    trainer.train()
    names = [name for name, _ in trainer.graph.adapter.routes["default"]]
    assert "hidden.0.weight" in names and not torch.equal(model.hidden[0].weight, torch.eye(3))

    shutil.copytree(tmp_path / "run" / "checkpoint-2", tmp_path / "again" / "checkpoint-2")
    again = trainer_of(tmp_path, net(), OptimizationPlan([passes.LowRank()]), name="again")
    again.train(resume_from_checkpoint=True)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])

    artifact = trainer.save_model(tmp_path / "artifact")
    fresh = net()
    fresh.load_state_dict(load_file(artifact / "model.safetensors"))
    batch = {"x": torch.randn(5, 3), "y": torch.randn(5)}
    torch.testing.assert_close(fresh(**batch)["loss"], model(**batch)["loss"])


def test_a_change_without_export_fails_before_it_writes(passes: Any, tmp_path: Any) -> None:
    trainer = trainer_of(tmp_path, net(), OptimizationPlan([passes.LowRank(portable=False)]))
    with pytest.raises(OptimizationError, match="no portable export"):
        trainer.save_model(tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


def test_a_ready_optimizer_is_refused_with_a_change_of_parameters(
    passes: Any, tmp_path: Any
) -> None:
    model = net()
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = trainer_of(
        tmp_path, model, OptimizationPlan([passes.LowRank()]), optimizers=(own, None)
    )
    with pytest.raises(ConfigurationError, match="as it was"):
        trainer.graph  # noqa: B018 - set-up happens here


def test_the_plan_is_part_of_checkpoints_and_of_the_run(passes: Any, tmp_path: Any) -> None:
    trainer = trainer_of(tmp_path, net(), OptimizationPlan([passes.Note("a")]))
    trainer.train()
    place = tmp_path / "run" / "checkpoint-2"
    written = json.loads((place / "optimization_manifest.json").read_text())
    assert written["passes"][0]["configuration"] == {"word": "a"}
    checkpoint = open_checkpoint(place)
    assert checkpoint.manifest["optimization_plan"] == written
    for plan in (OptimizationPlan([passes.Note("b")]), None):
        other = trainer_of(tmp_path, net(), plan)
        with pytest.raises(CheckpointMismatchError, match="optimization_plan"):
            other.train(resume_from_checkpoint=str(place))


@pytest.mark.parametrize(
    "context",
    [
        OptimizationContext(mode="inference", persist_result=True),
        OptimizationContext(mode="training", persist_result=False),
    ],
)
def test_the_context_of_training_keeps_results(
    passes: Any, tmp_path: Any, context: OptimizationContext
) -> None:
    plan = OptimizationPlan([passes.Note("a")])
    with pytest.raises(ConfigurationError, match="persist_result=True"):
        trainer_of(tmp_path, net(), plan, optimization_context=context)
    with pytest.raises(ConfigurationError, match="both set"):
        trainer_of(tmp_path, net(), plan, settings={"torch_compile": True})


@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param(
            "inductor",
            marks=pytest.mark.skipif(
                shutil.which("g++") is None and shutil.which("clang++") is None,
                reason="torch.compile's default backend needs a C++ compiler on the CPU",
            ),
        ),
    ],
)
def test_torch_compile_keeps_names_and_trains_the_same(
    tmp_path: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    if backend == "inductor":
        from torch._inductor import config

        monkeypatch.setattr(config, "compile_threads", 1)  # no pool of workers for one kernel
    plain = trainer_of(tmp_path, net(), None, name="plain")
    plain.train()
    model = net()
    compiled = TorchCompilePass(backend=backend)
    trainer = trainer_of(tmp_path, model, OptimizationPlan([compiled]), name="compiled")
    trainer.train()
    assert model._compiled_call_impl is not None
    assert trainer.optimization_plan is not None
    assert trainer.optimization_plan.manifest()["passes"][0]["result"]["compiled"] == [""]
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    tensors = open_checkpoint(tmp_path / "compiled" / "checkpoint-4").tensors()
    assert set(tensors) == set(net().state_dict())
    fresh = net()
    fresh.load_state_dict(load_file(trainer.save_model() / "model.safetensors"))
    compiled.restore(model)
    assert model._compiled_call_impl is None


def test_torch_compile_by_pattern(tmp_path: Any) -> None:
    model = net()
    plan = OptimizationPlan([TorchCompilePass(modules=("hid*",), backend="eager")])
    trainer_of(tmp_path, model, plan).graph  # noqa: B018
    assert model.hidden._compiled_call_impl is not None and model._compiled_call_impl is None
    wrong = OptimizationPlan([TorchCompilePass(modules=("hiden",), backend="eager")])
    with pytest.raises(OptimizationError, match="Did you mean 'hidden'"):
        trainer_of(tmp_path, net(), wrong).graph  # noqa: B018

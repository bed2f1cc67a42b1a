"""R8 and R9: what a forward may return as its loss, and the boundaries of a phase."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recipes import (
    DTYPE,
    Frames,
    Gan,
    GanAdapter,
    Hybrid,
    collate,
    gan_spec,
    seeded,
)
from torch import nn

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec

SGD = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}


class TestR8:
    """From whatever a forward returns to one loss."""

    def run(
        self, output: Any, inputs: Any = None, task: str = "text-to-speech", **phase: Any
    ) -> Any:
        class Returns(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones((), dtype=DTYPE))

            def forward(self, **_: Any) -> Any:
                return output(self.weight)

        spec = ModelTrainingSpec(
            "contract-r8",
            "contract",
            task=task,
            support="native",
            module_paths=("",),
            phases=(TrainingPhaseSpec("default", **phase),),
        )
        adapter = TrainingAdapter(Returns(), spec)
        adapter.setup()
        return adapter.execute_training_phase(TrainingContext(adapter.phases[0], inputs or {}))

    @pytest.mark.parametrize(
        "shape",
        [
            lambda w: {"loss": 3 * w},
            lambda w: (3 * w, "logits"),
            lambda w: SpeechTrainingOutput(loss=3 * w),
            lambda w: type("Output", (), {"loss": 3 * w})(),
        ],
    )
    def test_R8_objects_mappings_and_tuples(self, shape: Any) -> None:
        output = self.run(shape)
        assert output.loss.item() == 3.0 and output.training_phase == "default"
        assert output.metadata["model_type"] == "contract-r8"

    def test_R8_the_class_follows_the_task(self) -> None:
        assert type(self.run(lambda w: {"loss": w})) is TTSTrainingOutput
        asr = self.run(lambda w: {"loss": w}, task="automatic-speech-recognition")
        assert type(asr) is SpeechTrainingOutput

    def test_R8_declared_keys_and_weights(self) -> None:
        keys = {"loss_keys": ("mel", "kl"), "loss_weights": {"mel": 45.0}}
        output = self.run(lambda w: {"mel": 2 * w, "kl": 3 * w, "other": 100 * w}, **keys)
        assert output.loss.item() == 45 * 2 + 3
        assert {k: float(v) for k, v in output.losses.items()} == {"mel": 2.0, "kl": 3.0}

    def test_R8_a_fallback_runs_only_where_named_and_only_without_a_loss(self) -> None:
        named = {"fallback_objective": "cross_entropy", "label_names": ("labels",)}
        labels = {"labels": torch.tensor([0, 1, -100])}

        def logits(weight: Any) -> Any:
            return {"logits": weight * torch.tensor([[2.0, 0], [0, 2], [5, 5]], dtype=DTYPE)}

        output = self.run(logits, labels, **named)
        expected = torch.log1p(torch.exp(torch.tensor(-2.0))).item()
        assert output.loss.item() == pytest.approx(expected, rel=1e-6)
        assert int(output.num_items) == 2
        assert self.run(lambda w: {**logits(w), "loss": 7 * w}, labels, **named).loss.item() == 7.0
        with pytest.raises(ValueError, match="no generic fallback"):
            self.run(logits, labels)

    def test_R8_fallbacks_never_truncate_or_broadcast(self) -> None:
        def short(weight: Any) -> Any:
            return {"logits": weight * torch.ones(2, 4, 3, dtype=DTYPE)}

        labels = {"labels": torch.zeros(2, 5, dtype=torch.long)}
        for name in ("cross_entropy", "causal_cross_entropy", "classification"):
            with pytest.raises(ValueError, match="silently truncate"):
                self.run(short, labels, fallback_objective=name)
        with pytest.raises(ValueError, match="broadcasting"):
            self.run(short, {"labels": torch.ones(2, 4, 1)}, fallback_objective="regression_loss")

    @pytest.mark.parametrize(
        ("shape", "error"),
        [
            (lambda w: {}, ValueError),
            (lambda w: {"loss": 3.0}, TypeError),
            (lambda w: {"loss": w * torch.ones(2, dtype=DTYPE)}, ValueError),
            (lambda w: {"loss": w.detach()}, ValueError),
        ],
    )
    def test_R8_what_is_no_loss_is_refused(self, shape: Any, error: type[Exception]) -> None:
        with pytest.raises(error, match="loss"):
            self.run(shape)


class TestR9:
    """Boundaries hold inside a phase and are gone after it."""

    def adapter(self, **phase: Any) -> tuple[Any, TrainingAdapter]:
        hybrid = seeded(Hybrid)
        seen: dict[str, Any] = {}

        class Looking(TrainingAdapter):
            def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> Any:
                seen["frozen"] = not hybrid.encoder.weight.requires_grad
                seen["attached"] = inputs["features"].requires_grad
                if inputs.get("fail"):
                    raise RuntimeError("in the forward")
                return hybrid.decoder(hybrid.encoder(inputs["features"])).mean()

        spec = ModelTrainingSpec(
            "contract-r9",
            "contract",
            support="native",
            module_paths=("",),
            phases=(
                TrainingPhaseSpec("held", **phase),
                TrainingPhaseSpec("free"),
            ),
        )
        adapter = Looking(hybrid, spec)
        adapter.setup()
        adapter.seen = seen  # type: ignore[attr-defined]
        return hybrid, adapter

    def test_R9_frozen_and_detached_inside_restored_after(self) -> None:
        hybrid, adapter = self.adapter(
            frozen_component_paths=("encoder",), detach_inputs=("features",)
        )
        features = torch.ones(2, 3, dtype=DTYPE, requires_grad=True)
        held, free = adapter.phases
        loss = adapter.execute_training_phase(TrainingContext(held, {"features": features})).loss
        assert adapter.seen == {"frozen": True, "attached": False}  # type: ignore[attr-defined]
        assert hybrid.encoder.weight.requires_grad and features.requires_grad
        loss.backward()
        assert hybrid.encoder.weight.grad is None and features.grad is None
        assert hybrid.decoder.weight.grad is not None
        adapter.execute_training_phase(
            TrainingContext(free, {"features": features})
        ).loss.backward()
        assert hybrid.encoder.weight.grad is not None and features.grad is not None

    def test_R9_restored_after_an_exception(self) -> None:
        hybrid, adapter = self.adapter(frozen_component_paths=("encoder",))
        inputs = {"features": torch.ones(1, 3, dtype=DTYPE), "fail": True}
        with pytest.raises(RuntimeError, match="in the forward"):
            adapter.execute_training_phase(TrainingContext(adapter.phases[0], inputs))
        assert all(p.requires_grad for p in hybrid.parameters())

    def test_R9_no_gradient_leaks_into_another_route(self) -> None:
        gan = seeded(Gan)
        adapter = GanAdapter(gan, gan_spec())
        adapter.setup()
        context = TrainingContext(adapter.select_phase("generator"), collate(Frames(4).items))
        adapter.execute_training_phase(context).loss.backward()
        assert all(p.grad is None for p in gan.discriminator.parameters())
        assert all(p.grad is not None for p in gan.generator.parameters())

"""Steps by hand, to compare what two settings train to."""

from __future__ import annotations

from typing import Any

import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.context import TrainingContext


def adapter_of(wrapper: Any) -> Any:
    """A ready adapter in training mode."""
    adapter = AutoTrainingAdapter.from_model(wrapper)
    adapter.setup()
    adapter.train_mode()
    return adapter


def run(adapter: Any, batch: dict[str, Any], *, training: bool = True) -> Any:
    """Output of a phase on a batch."""
    inputs = {key: value for key, value in batch.items() if key != "batch_info"}
    phase = adapter.phases[0]
    if training:
        context = TrainingContext(phase, inputs, 0, 0.0, True, batch["batch_info"])
        return adapter.execute_training_phase(context)
    adapter.eval_mode()
    context = TrainingContext(phase, inputs, None, None, False, batch["batch_info"])
    return adapter.execute_prediction_phase(context)


def gradients(adapter: Any, batch: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of the parameters that have one."""
    adapter.module.zero_grad()
    output = run(adapter, batch)
    output.loss.backward()
    named = adapter.module.named_parameters()
    found = {name: p.grad.clone() for name, p in named if p.grad is not None}
    return float(output.loss.detach()), found


def train(adapter: Any, batches: list[dict[str, Any]], rate: float = 1e-2) -> list[float]:
    """Losses of plain SGD steps."""
    trained = [p for p in adapter.module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=rate)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        output = run(adapter, batch)
        output.loss.backward()
        optimizer.step()
        losses.append(float(output.loss.detach()))
    return losses

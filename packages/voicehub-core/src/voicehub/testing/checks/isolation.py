"""What training and evaluation must leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from voicehub.adapters.context import TrainingContext
from voicehub.adapters.freezing import frozen_modules
from voicehub.checkpoints.random_state import capture_random_state
from voicehub.testing.case import ConformanceCase
from voicehub.testing.probe import build_adapter, split_batch
from voicehub.testing.samples import draw_items
from voicehub.testing.training import (
    differing,
    equal,
    listed,
    logged_losses,
    make_trainer,
    state_of,
)
from voicehub.trainer.callbacks import TrainerCallback

_MODE_ERROR = "frozen modules are in training mode: {}"


class _ModeWatcher(TrainerCallback):
    """Notes frozen modules that are in training mode when a step ends."""

    def __init__(self, modules: dict[str, nn.Module]) -> None:
        self.modules = modules
        self.wrong: set[str] = set()

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """As the forward left them."""
        self.wrong.update(name for name, module in self.modules.items() if module.training)


def frozen(case: ConformanceCase, directory: Path) -> str:
    """Frozen parameters and the buffers beside them keep every bit, their modules eval mode."""
    adapter = build_adapter(case, dropout=0.1)
    trained = {parameter for named in adapter.routes.values() for _, parameter in named}
    modules = _named_frozen(adapter.module, trained)
    kept = [name for name, p in adapter.module.named_parameters() if p not in trained]
    for prefix, module in modules.items():
        kept += [f"{prefix}.{name}".lstrip(".") for name, _ in module.named_buffers()]
    flags = [p.requires_grad for p in adapter.module.parameters()]
    before = state_of(adapter)
    watcher = _ModeWatcher(modules)
    trainer = make_trainer(
        case, draw_items(case, 8, 2), directory, adapter=adapter, callbacks=[watcher],
        max_steps=3, learning_rate=1e-2, weight_decay=0.1,
    )  # fmt: skip
    trainer.train()
    changed = sorted(set(differing(before, state_of(adapter))) & set(kept))
    assert not changed, f"frozen, but changed: {listed(changed)}"
    assert not watcher.wrong, _MODE_ERROR.format(listed(sorted(watcher.wrong)))
    after = [p.requires_grad for p in adapter.module.parameters()]
    assert after == flags, "training left requires_grad flags changed"
    _check_restored_after_error(case, adapter)
    return f"{len(kept)} frozen tensors in {len(modules)} modules" if kept else "nothing is frozen"


def _named_frozen(root: nn.Module, trained: set[nn.Parameter]) -> dict[str, nn.Module]:
    found = set(frozen_modules(root, lambda p: p.requires_grad and p in trained))
    tops = {name: module for name, module in root.named_modules() if module in found}
    return {
        f"{top}.{name}".strip("."): part
        for top, module in tops.items()
        for name, part in module.named_modules()
    }


def _check_restored_after_error(case: ConformanceCase, adapter: Any) -> None:
    """The boundaries of a phase are restored also where its forward raises (R9)."""
    flags = [p.requires_grad for p in adapter.module.parameters()]
    inputs, info, named = split_batch(case.collate(draw_items(case, 2, 3)))
    phase = adapter.select_phase(named) if named else adapter.phases[0]

    def fail(*_: Any, **__: Any) -> Any:
        raise _Planned

    adapter.training_step_loss = fail
    try:
        adapter.execute_training_phase(TrainingContext(phase, inputs, 0, 0.0, True, info))
    except _Planned:
        pass
    finally:
        del adapter.training_step_loss
    after = [p.requires_grad for p in adapter.module.parameters()]
    assert after == flags, "an exception in a phase left requires_grad flags changed"


class _Planned(Exception):
    pass


def evaluation(case: ConformanceCase, directory: Path) -> str:
    """Evaluating between updates changes neither weights, modes nor random draws (E1)."""
    items, unseen = draw_items(case, 8, 4), draw_items(case, 6, 5)
    options: dict[str, Any] = {"max_steps": 3, "dropout": 0.1, "eval_items": unseen}
    plain = make_trainer(case, items, directory / "plain", **options)
    plain.train()
    watched = make_trainer(
        case, items, directory / "watched", eval_strategy="steps", eval_steps=1, **options
    )
    watched.train()
    changed = differing(state_of(plain.adapter), state_of(watched.adapter))
    assert not changed, f"training with evaluations in between ends elsewhere: {listed(changed)}"
    assert logged_losses(plain) == logged_losses(watched), "evaluations change the training losses"
    before, random_state = state_of(plain.adapter), capture_random_state()
    plain.adapter.train_mode()
    modes = [module.training for module in plain.adapter.module.modules()]
    first, second = plain.evaluate(), plain.evaluate()
    assert not differing(before, state_of(plain.adapter)), "evaluate() changes weights or buffers"
    assert equal(random_state, capture_random_state()), "evaluate() moves the random state"
    assert modes == [m.training for m in plain.adapter.module.modules()], "evaluate() leaves modes"
    assert "eval_loss" in first, "evaluate() gives no loss"
    same = {k: v for k, v in first.items() if "runtime" not in k and "per_second" not in k}
    differ = [key for key, value in same.items() if value != second[key]]
    assert not differ, f"two evaluations differ in {listed(differ)}"
    return f"loss {first['eval_loss']:.4g} twice; {len(same)} metrics"

"""Differences of two resume signatures under the names that a user has written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from voicehub.checkpoints.signature import Difference

_SHOWN = 4  # entries of the signature behind a setting

#: End of a path in the signature -> settings of ``training`` that decide what stands there.
_DECIDED_BY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"initial_lr", ("learning_rate",)),
    (r"betas\[0\]", ("adam_beta1",)),
    (r"betas\[1\]", ("adam_beta2",)),
    (r"eps", ("adam_epsilon",)),
    (r"weight_decay", ("weight_decay",)),
    (r"fused", ("adamw_fused",)),
    (r"optimizers\.[^.]+\.class", ("optim",)),
    (r"groups", ("weight_decay", "optim", "param_groups", "freeze")),
    (r"freeze(\[.*)?|tensors", ("freeze",)),
    (r"max_grad_norm", ("max_grad_norm",)),
    (r"gradient_checkpointing", ("gradient_checkpointing",)),
    (r"micro_batch|data\..*batch_size", ("per_device_train_batch_size",)),
    (r"accumulation", ("gradient_accumulation_steps",)),
    (r"drop_last", ("dataloader_drop_last",)),
    (r"data\..*seed", ("data_seed", "seed")),
    (r"seed", ("seed",)),
    (r"schedule\.type|scheduler", ("lr_scheduler_type",)),
    (r"schedule\.options.*", ("lr_scheduler_kwargs", "lr_scheduler_gamma")),
    (r"max_steps|updates", ("max_steps", "num_train_epochs")),
    (r"warmup", ("warmup_steps", "warmup_ratio")),
    (r"fp16|scaler", ("fp16",)),
    (r"bf16", ("bf16",)),
)


def described(
    differences: Sequence[Difference], saved: Mapping[str, Any], current: Mapping[str, Any]
) -> list[str]:
    """Each changed setting with the entries it decides below it, then what no setting explains.

    Args:
        differences: of the signatures.
        saved, current: the settings of ``training``, of the checkpoint and of this run. Only one
            that differs between them is named: the same value may be decided elsewhere.
    """
    behind: dict[str, list[Difference]] = {}
    unexplained = []
    for difference in differences:
        changed = [
            name for name in _deciding(difference.path) if saved.get(name) != current.get(name)
        ]
        for name in changed:
            behind.setdefault(name, []).append(difference)
        if not changed:
            unexplained.append(_internal(difference))
    lines = [
        "\n      ".join(
            [f"training.{name}: checkpoint={saved.get(name)!r}, current={current.get(name)!r}"]
            + [_internal(found) for found in decided[:_SHOWN]]
            + [f"and {len(decided) - _SHOWN} more"] * (len(decided) > _SHOWN)
        )
        for name, decided in behind.items()
    ]
    return lines + unexplained


def _internal(difference: Difference) -> str:
    return f"resume_signature.{difference}"


def _deciding(path: str) -> tuple[str, ...]:
    for pattern, names in _DECIDED_BY:
        if re.search(rf"(^|\.)({pattern})$", path):
            return names
    return ()

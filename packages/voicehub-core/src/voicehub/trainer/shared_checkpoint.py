"""A checkpoint that several processes write together, where each holds a part of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.checkpoints.litter import remove_staging
from voicehub.checkpoints.manifest import FileDigest
from voicehub.checkpoints.shards import (
    MODEL_STEM,
    OPTIMIZER_STEM,
    assign,
    index_document,
    index_name,
    take_out,
    write_shard,
)
from voicehub.checkpoints.snapshot import CheckpointPayload
from voicehub.checkpoints.writer import Shards, begin, explained_write
from voicehub.errors import CheckpointError
from voicehub.strategies.base import TrainingStrategy
from voicehub.trainer.agreement import raise_first, told


@dataclass(frozen=True)
class _Share:
    """Who writes what of some tensors, and what this process writes of them."""

    stem: str
    owners: Mapping[str, int]
    nbytes: Mapping[str, int]
    mine: Mapping[str, Tensor]


def write_shares(
    strategy: TrainingStrategy,
    module: nn.Module,
    payload: CheckpointPayload,
    *,
    run_dir: Path,
    step: int,
    run_id: str,
) -> tuple[CheckpointPayload, Shards]:
    """Write this process's share of weights and optimizer state; all processes must call it.

    Returns:
        The payload without those tensors but with their indexes, and what all have written.

    Raises:
        CheckpointError: weights are not finite, or a process cannot write; none of it remains.
        RankFailedError: it failed on another process.
    """
    model = _share(strategy, MODEL_STEM, _model_tensors(module))
    _check_finite(strategy, model, payload)
    held: dict[str, Tensor] = {}
    skeleton = take_out(payload.optimizer, lambda name, tensor: _keep(held, name, tensor))
    shares = [model, _share(strategy, OPTIMIZER_STEM, held.items())]
    staging = Path(
        strategy.on_primary(
            lambda: str(begin(run_dir, step, run_id)), what="the directory of a checkpoint"
        )
    )
    files = _write(strategy, staging, shares)
    indexes = {
        index_name(share.stem): index_document(share.stem, share.owners, share.nbytes)
        for share in shares
    }
    rest = replace(
        payload, tensors={}, optimizer=skeleton, documents={**payload.documents, **indexes}
    )
    return rest, Shards(staging, files)


def _model_tensors(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Parameters, tied ones once, and persistent buffers, by the names of the state dict."""
    names = module.state_dict().keys()
    for name, parameter in module.named_parameters():
        if name in names:
            yield name, parameter
    for name, buffer in module.named_buffers():
        if name in names:
            yield name, buffer


def _keep(held: dict[str, Tensor], name: str, tensor: Tensor) -> bool:
    """Tensors of the size of parameters go into shards; counters stay where they are."""
    if tensor.ndim == 0:
        return False
    held[name] = tensor
    return True


def _share(strategy: TrainingStrategy, stem: str, tensors: Iterable[tuple[str, Tensor]]) -> _Share:
    """Gather tensors one by one; each process keeps those that it writes."""
    named = dict(tensors)
    nbytes = {name: tensor.numel() * tensor.element_size() for name, tensor in named.items()}
    owners = assign(nbytes, strategy.world_size)
    mine = {}
    for name, tensor in named.items():
        whole = strategy.whole_tensor(tensor)
        if owners[name] == strategy.rank:
            mine[name] = whole.detach().to("cpu", copy=True).contiguous()
    return _Share(stem, owners, nbytes, mine)


def _check_finite(strategy: TrainingStrategy, share: _Share, payload: CheckpointPayload) -> None:
    bad = [
        name
        for name, tensor in share.mine.items()
        if name not in payload.allow_non_finite
        and tensor.is_floating_point()
        and not bool(torch.isfinite(tensor).all())
    ]
    everywhere = sorted(n for found in strategy.exchange(bad, what="finite weights") for n in found)
    if everywhere:
        raise CheckpointError(
            f"the model holds NaN or infinite values in {len(everywhere)} tensor(s): "
            f"{', '.join(map(repr, everywhere[:8]))}. No checkpoint was written; the last complete "
            "one is the place to resume from."
        )


def _write(
    strategy: TrainingStrategy, staging: Path, shares: list[_Share]
) -> dict[str, FileDigest]:
    """Write this process's files and return the digests of all files of all processes."""
    problem: Exception | None = None
    own: dict[str, FileDigest] = {}
    try:
        for share in shares:
            nbytes = sum(tensor.nbytes for tensor in share.mine.values())
            with explained_write(staging, nbytes):
                own.update(
                    write_shard(staging, share.stem, strategy.rank, share.owners, share.mine)
                )
    except Exception as error:
        problem = error
    row = {"files": {n: list(d) for n, d in own.items()}, "problem": told(problem)}
    rows = strategy.exchange(row, what="the shards of a checkpoint")
    try:
        raise_first(problem, rows)
    except BaseException:
        if strategy.is_primary:
            remove_staging(staging)
        raise
    return {name: FileDigest(*digest) for row in rows for name, digest in row["files"].items()}


RestTensors = Callable[[Tensor, Tensor], Tensor]


def laid_out_like(
    part_like: RestTensors, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one optimizer's saved state with whole tensors as the processes' parts of them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parts = {
        number: {
            key: part_like(value, parameters[number]) if isinstance(value, Tensor) else value
            for key, value in entries.items()
        }
        for number, entries in state["state"].items()
    }
    return {**state, "state": parts}

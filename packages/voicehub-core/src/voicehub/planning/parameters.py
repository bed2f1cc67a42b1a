"""What a model holds: how many parameters, of which dtypes, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from voicehub.planning.sharing import Blocks
from voicehub.strategies.fsdp import sharded_blocks


@dataclass(frozen=True)
class Parameters:
    """What a set-up recipe holds.

    Attributes:
        total, trainable: numbers, every parameter once.
        bytes_by_dtype: bytes by dtype name.
        blocks: sizes of what FSDP would gather at once.
        parts: bytes of those that train, by the path of the part of the model that holds them.
    """

    total: int
    trainable: int
    bytes_by_dtype: Mapping[str, int]
    blocks: Blocks
    parts: Mapping[str, int]


def parameters_of(module: nn.Module, smallest_block: int) -> Parameters:
    """Look through a module; FSDP gathers blocks of at least ``smallest_block`` parameters."""
    by_dtype: Counter[str] = Counter()
    total = trainable = 0
    for parameter in module.parameters():
        by_dtype[str(parameter.dtype).removeprefix("torch.")] += _bytes(parameter)
        total += parameter.numel()
        trainable += parameter.numel() if parameter.requires_grad else 0
    return Parameters(
        total, trainable, dict(by_dtype), _blocks(module, smallest_block), _parts(module)
    )


def _blocks(module: nn.Module, smallest: int) -> Blocks:
    everything = list(module.parameters())
    blocks = [list(block.parameters()) for block in sharded_blocks(module, smallest, set())]
    inside = {parameter for block in blocks for parameter in block}
    outside = [parameter for parameter in everything if parameter not in inside]
    return Blocks(
        root=sum(map(_bytes, outside)),
        largest=max((sum(map(_bytes, block)) for block in blocks), default=0),
        trainable=_trainable_bytes(everything),
        trainable_root=_trainable_bytes(outside),
        trainable_largest=max(map(_trainable_bytes, blocks), default=0),
    )


def _parts(module: nn.Module) -> dict[str, int]:
    """Bytes that train by part: children, or theirs where a model has only one."""
    path = ""
    children = list(module.named_children())
    while len(children) == 1 and not module._parameters:
        name, module = children[0]
        path = f"{path}{name}."
        children = list(module.named_children())
    sizes = {f"{path}{name}": _trainable_bytes(child.parameters()) for name, child in children}
    return {name: size for name, size in sizes.items() if size}


def _trainable_bytes(parameters: Iterable[nn.Parameter]) -> int:
    return sum(_bytes(parameter) for parameter in parameters if parameter.requires_grad)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()

"""Model tensors as a flat mapping that safetensors can hold, and back, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from voicehub.errors import CheckpointMismatchError, RecipeError
from voicehub.suggest import did_you_mean


def export_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers, detached, contiguous, none sharing memory.

    Of tied tensors the first name is kept (see ``tied_names``); views that overlap in part are
    copied. Otherwise nothing is copied.
    """
    state = _tensors(module)
    aliases = _aliases(state)
    holders: dict[int, int] = {}
    for name, tensor in state.items():
        if name not in aliases and tensor.numel():
            pointer = tensor.untyped_storage().data_ptr()
            holders[pointer] = holders.get(pointer, 0) + 1
    exported: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name in aliases:
            continue
        shared = tensor.numel() and holders[tensor.untyped_storage().data_ptr()] > 1
        exported[name] = tensor.contiguous().clone() if shared else tensor.contiguous()
    return exported


def tied_names(module: nn.Module) -> dict[str, str]:
    """Return ``{name: the name it shares its tensor with}`` for tied tensors."""
    return _aliases(_tensors(module))


def load_tensors(module: nn.Module, state: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """Copy tensors into a module after everything was validated.

    Names that ``export_tensors`` left out because they are tied are filled in from the module's
    own ties.

    Args:
        module: What to load into.
        state: Flat tensors by name.
        strict: False permits missing and unexpected names, and another floating dtype.

    Raises:
        CheckpointMismatchError: names, shapes or dtypes differ; nothing was changed.
    """
    current = _tensors(module)
    full = dict(state)
    for alias, original in _aliases(current).items():
        if alias not in full and original in full:
            full[alias] = full[original]
    problems = _name_problems(current, full) if strict else []
    for name in current.keys() & full.keys():
        problems.extend(_tensor_problems(name, current[name], full[name], strict))
    if problems:
        shown = "\n  ".join(sorted(problems)[:8])
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise CheckpointMismatchError(
            f"The model state does not fit this model; nothing was loaded.\n  {shown}{more}"
        )
    module.load_state_dict({name: full[name] for name in current if name in full}, strict=False)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise RecipeError(
                f"State entry {name!r} is a {type(value).__name__}; model state holds tensors "
                "alone. Return a tensor from get_extra_state(), or keep the value in the "
                "adapter's recipe_state_dict()."
            )
    return dict(state)


def _aliases(state: Mapping[str, Tensor]) -> dict[str, str]:
    first: dict[tuple[object, ...], str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in state.items():
        if not tensor.numel() or tensor.device.type == "meta":
            continue
        identity = (
            tensor.device,
            tensor.data_ptr(),
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
        )
        if identity in first:
            aliases[name] = first[identity]
        else:
            first[identity] = name
    return aliases


def _name_problems(current: Mapping[str, Tensor], full: Mapping[str, Tensor]) -> list[str]:
    problems = [
        f"{name}: missing from the state.{did_you_mean(name, full.keys() - current.keys())}"
        for name in current.keys() - full.keys()
    ]
    problems.extend(f"{name}: not part of the model." for name in full.keys() - current.keys())
    return problems


def _tensor_problems(name: str, mine: Tensor, theirs: object, strict: bool) -> list[str]:
    if not isinstance(theirs, Tensor):
        return [f"{name}: expected a tensor, got {type(theirs).__name__}."]
    if mine.shape != theirs.shape:
        return [f"{name}: shape {tuple(theirs.shape)}, the model has {tuple(mine.shape)}."]
    if mine.dtype != theirs.dtype:
        castable = mine.is_floating_point() and theirs.is_floating_point()
        if strict or not castable:
            return [f"{name}: dtype {theirs.dtype}, the model has {mine.dtype}."]
    return []

"""Checks of a loaded module graph before it trains (the second check of S4)."""

from __future__ import annotations

from torch import nn

from voicehub.errors import UnsupportedTrainingError

MAX_MODULES = 16_384
_SERVING = ("onnxruntime", "llama_cpp", "tensorrt", "vllm")
_COMPILED = ("torch._dynamo", "optimizedmodule", "scriptmodule")
_QUANTISED = (
    "quantized",
    "linear4bit",
    "linear8bit",
    "bitsandbytes",
    "gptq",
    "awq",
    "quantlinear",
)


class UnsupportedGraphError(UnsupportedTrainingError, TypeError):
    """The module graph is of a kind that cannot be trained."""


class GraphTooLargeError(UnsupportedTrainingError, RuntimeError):
    """The graph has more modules than a recipe is expected to have."""


def check_graph(
    root: nn.Module, *, allow_quantised: bool = False, allow_compiled: bool = False
) -> None:
    """Refuse serving runtimes, compiled or quantised modules, and graphs out of proportion.

    Raises:
        UnsupportedGraphError: (a TypeError) a module or parameter cannot be trained.
        GraphTooLargeError: (a RuntimeError) more than 16,384 modules.
    """
    for count, (name, module) in enumerate(root.named_modules(), start=1):
        if count > MAX_MODULES:
            raise GraphTooLargeError(
                f"The graph has more than {MAX_MODULES} modules; a wrapper that holds itself, or "
                "a component list that is too wide, is the usual cause."
            )
        _check_module(name or "(root)", module, allow_quantised, allow_compiled)
    for name, parameter in root.named_parameters():
        if not parameter.requires_grad:
            continue
        if not (parameter.is_floating_point() or parameter.is_complex()):
            raise UnsupportedGraphError(
                f"Parameter {name!r} is trainable but holds {parameter.dtype}, which has no "
                "gradient; load the model in floating point."
            )


def _check_module(
    name: str, module: nn.Module, allow_quantised: bool, allow_compiled: bool
) -> None:
    kind = type(module)
    qualified = f"{kind.__module__}.{kind.__qualname__}"
    folded = qualified.lower()
    if any(marker in folded for marker in _SERVING):
        raise UnsupportedGraphError(
            f"Module {name!r} is a serving runtime ({qualified}); it has no gradient. Load the "
            "original checkpoint for training."
        )
    if not allow_compiled and any(marker in folded for marker in _COMPILED):
        raise UnsupportedGraphError(
            f"Module {name!r} is compiled/scripted ({qualified}); train the module it was made "
            "from."
        )
    if not allow_quantised and any(marker in folded for marker in _QUANTISED):
        raise UnsupportedGraphError(
            f"Module {name!r} needs quantized training ({qualified}), which this recipe does not "
            "support; load the model in full precision."
        )

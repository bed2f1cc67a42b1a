"""Graphs that cannot be trained are refused before an optimizer exists."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.adapters.graph_checks import MAX_MODULES, check_graph


def of_kind(name: str, module: str = "somewhere") -> nn.Module:
    return type(name, (nn.Module,), {"__module__": module})()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (of_kind("Session", "onnxruntime.capi"), "serving runtime"),
        (of_kind("Llama", "llama_cpp.model"), "serving runtime"),
        (of_kind("Engine", "tensorrt.engine"), "serving runtime"),
        (of_kind("Worker", "vllm.worker"), "serving runtime"),
        (of_kind("OptimizedModule", "torch._dynamo.eval_frame"), "compiled/scripted"),
        (of_kind("RecursiveScriptModule", "torch.jit._script"), "compiled/scripted"),
        (of_kind("Linear", "torch.ao.nn.quantized.modules.linear"), "quantized training"),
        (of_kind("Linear4bit", "bitsandbytes.nn.modules"), "quantized training"),
        (of_kind("QuantLinear", "auto_gptq.nn_modules"), "quantized training"),
    ],
)
def test_unsupported_modules_are_type_errors_that_name_the_module(module, message):
    root = nn.Sequential(nn.Linear(1, 1), module)
    with pytest.raises(TypeError, match=message) as caught:
        check_graph(root)
    assert "'1'" in str(caught.value)


def test_adapters_may_allow_quantised_and_compiled_graphs():
    check_graph(of_kind("Linear4bit", "bitsandbytes.nn"), allow_quantised=True)
    check_graph(of_kind("OptimizedModule", "torch._dynamo.eval_frame"), allow_compiled=True)
    with pytest.raises(TypeError, match="serving runtime"):
        check_graph(of_kind("W", "vllm.x"), allow_quantised=True, allow_compiled=True)


def test_a_really_compiled_and_a_really_scripted_module_are_found():
    with pytest.raises(TypeError, match="compiled/scripted"):
        check_graph(torch.compile(nn.Linear(1, 1), backend="eager"))


def test_a_graph_out_of_proportion_is_a_runtime_error():
    root = nn.ModuleList(nn.Identity() for _ in range(MAX_MODULES - 1))
    check_graph(root)
    root.append(nn.Identity())
    with pytest.raises(RuntimeError, match="16384"):
        check_graph(root)


def test_floating_and_complex_parameters_are_fine():
    root = nn.Module()
    root.real = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    root.complex = nn.Parameter(torch.zeros(1, dtype=torch.complex64))
    root.index = nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False)
    check_graph(root)


def test_the_loaded_graph_is_checked_at_set_up(make_adapter, regressor):
    regressor.extra = of_kind("Worker", "vllm.worker")
    with pytest.raises(TypeError, match="serving runtime"):
        make_adapter({"model": regressor})

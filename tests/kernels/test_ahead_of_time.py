"""Every Triton kernel compiles for GPUs that are not here, without spills and atomics."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: no CUDA path to compile")

from ahead_of_time import ARCHITECTURES, Binary, compile_all
from shipped import cover, jobs, kernels, problems
from triton.runtime.jit import JITFunction

PACKAGES = Path(__file__).resolve().parents[2] / "packages"


def launched() -> Iterator[str]:
    """``module:name`` of each kernel in the packages; what returns a value is called by kernels."""
    for path in PACKAGES.glob("*/src/**/*.py"):
        if "_triton" not in path.with_suffix("").parts:
            continue
        parts = path.relative_to(PACKAGES).with_suffix("").parts[2:]
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for name, value in vars(module).items():
            if not isinstance(value, JITFunction) or value.fn.__module__ != module.__name__:
                continue
            tree = ast.parse(textwrap.dedent(inspect.getsource(value.fn)))
            returns = (node for node in ast.walk(tree) if isinstance(node, ast.Return))
            if all(node.value is None for node in returns):
                yield f"{module.__name__}:{name}"


def test_every_kernel_is_listed() -> None:
    assert sorted(launched()) == sorted(kernel.kernel for kernel in kernels())


def test_the_cover_is_part_of_all_and_has_every_kernel_everywhere() -> None:
    part, everything = cover(), jobs()
    assert all(job in everything for job in part)
    everywhere = {(kernel.kernel, n) for kernel in kernels() for n in ARCHITECTURES}
    assert {(job.kernel, job.architecture) for job in part} == everywhere
    somewhere = [replace(job, architecture=0) for job in part]
    for kernel in kernels():
        assert all(replace(job, architecture=0) in somewhere for job in kernel.values(80))


def test_what_is_beyond_bounds_is_told() -> None:
    job = cover()[0]
    bad = Binary(registers=129, stack=8, local=0, shared=50_000, atomics=["red.global"])
    said = " ".join(problems([job], [bad]))
    for part in ("8 bytes of stack", "129 registers", "50000 bytes of shared", "red.global"):
        assert part in said


def test_the_cover_compiles_within_bounds(request: pytest.FixtureRequest) -> None:
    """Binaries are kept between runs by a hash of all that makes them."""
    wanted = cover()
    kept = request.config.cache.mkdir("ahead_of_time")
    assert problems(wanted, compile_all(wanted, kept)) == []

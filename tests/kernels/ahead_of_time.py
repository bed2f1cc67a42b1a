"""Compile Triton kernels for GPUs that are not here, and read from the binary what they use.

``compile_all`` does so in a process of its own, since compiling needs one in which Triton's
interpreter is off. Stack in the binary is where spilled registers go: 0 bytes of it, no spill.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ARCHITECTURES = (80, 90, 100)


@dataclass(frozen=True)
class Job:
    """One kernel in one configuration for one architecture.

    Attributes:
        kernel: ``module:name``.
        signature: Triton type by parameter, as ``*fp32`` or ``i64``.
        constants: values of the constexpr parameters.
        warps: warps of a program.
        architecture: 80, 90, 100, ...
        aligned: all pointers and all numbers are multiples of 16, which lets the compiler load
            several values at once.
        maxnreg: the option of that name, or None.
    """

    kernel: str
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int
    architecture: int
    aligned: bool = False
    maxnreg: int | None = None


@dataclass(frozen=True)
class Binary:
    """What a compiled kernel uses: registers a thread, bytes of stack and of local memory."""

    registers: int
    stack: int
    local: int
    shared: int
    atomics: list[str] = field(default_factory=list)


def compile_all(jobs: Sequence[Job], cache: Path) -> list[Binary]:
    """Compile in a fresh process.

    Args:
        jobs: what to compile.
        cache: where Triton keeps binaries by a hash of all that makes them; one that stays makes
            the next call cheap.
    """
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([asdict(job) for job in jobs]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [Binary(**found) for found in json.loads(done.stdout)]


def compile_job(job: Job) -> Binary:
    """Compile one kernel in this process."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, _, name = job.kernel.partition(":")
    kernel = getattr(importlib.import_module(module), name)
    signature = {**job.signature, **dict.fromkeys(job.constants, "constexpr")}
    attributes = {}
    if job.aligned:
        names = (name for name in job.signature if name not in job.constants)
        places = ((kernel.arg_names.index(name),) for name in names)
        attributes = {place: [["tt.divisibility", 16]] for place in places}
    source = ASTSource(kernel, signature, dict(job.constants), attributes)
    target = GPUTarget("cuda", job.architecture, 32)
    options = {"num_warps": job.warps, "maxnreg": job.maxnreg}
    compiled = triton.compile(source, target=target, options=options)
    used = resources(compiled.asm["cubin"])
    atomics = re.findall(r"\b(?:atom|red)\.\S+", compiled.asm["ptx"])
    return Binary(used["REG"], used["STACK"], used["LOCAL"], compiled.metadata.shared, atomics)


def resources(cubin: bytes) -> dict[str, int]:
    """What ``cuobjdump`` says of the binary: REG, STACK, LOCAL and more."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"\b([A-Z]+):(\d+)", text)}


if __name__ == "__main__":
    print(json.dumps([asdict(compile_job(Job(**job))) for job in json.load(sys.stdin)]))

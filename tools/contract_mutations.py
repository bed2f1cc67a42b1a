"""Break the code on purpose, statement by statement, and see whether the contract tests notice.

Each mutation (``contract_breaks.py``) replaces one piece of text in a copy of its package, in a
temporary directory, and runs the tests of its statement against the copy. A mutation that no test
catches is a hole in the proof; one whose text is not found any more has to be rewritten.

Run ``python tools/contract_mutations.py [STATEMENT ...]``; all take some minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy  # noqa: F401 - loaded once for all forks, as are the others
import pydantic  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import torch
import torch.utils.data  # noqa: F401
from contract_breaks import MUTATIONS, Mutation
from contract_page import proofs

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 120
"""Seconds that the tests of a statement get."""
MODULES = {"voicehub-core": "voicehub", "voicehub-hf": "voicehub_hf"}


def passes(statement: str, mutation: Mutation | None = None) -> bool:
    """Whether the tests of a statement pass, on a copy of the package that was broken if asked to.

    They run in a fork, which finds the libraries loaded already and the packages not.

    Raises:
        RuntimeError: pytest did not come as far as running them.
    """
    with tempfile.TemporaryDirectory() as directory:
        if mutation is not None:
            _write_broken(mutation, Path(directory))
        child = os.fork()
        if child == 0:
            _run_tests(statement, directory)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGALRM:
        return False
    if code not in (0, 1):
        raise RuntimeError(f"pytest of {statement} ended with {code}")
    return code == 0


def _run_tests(statement: str, directory: str) -> NoReturn:
    code = 3
    signal.alarm(LIMIT)  # a break that makes the tests wait for ever is noticed as well
    try:
        os.environ.update(PYTHONPATH=directory, PYTHONDONTWRITEBYTECODE="1")
        sys.path.insert(0, directory)
        sys.dont_write_bytecode = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(ROOT)
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", f"{statement}_"]
        code = int(pytest.main([*options, *_files_of(statement)]))
    finally:
        os._exit(code)


def _files_of(statement: str) -> list[str]:
    """Files of the contract tests that prove a statement."""
    found = {proof.file for proof in proofs() if proof.statement == statement}
    return sorted(file for file in found if file.startswith("tests/contract/"))


def verdict(mutation: Mutation) -> str:
    """``caught``, ``SURVIVED`` or ``STALE``."""
    if mutation.old not in (_source_of(mutation) / mutation.file).read_text(encoding="utf-8"):
        return "STALE"
    return "SURVIVED" if passes(mutation.statement, mutation) else "caught"


def _source_of(mutation: Mutation) -> Path:
    return ROOT / "packages" / mutation.package / "src" / MODULES[mutation.package]


def _write_broken(mutation: Mutation, directory: Path) -> None:
    source = _source_of(mutation)
    copy = directory / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.old, mutation.new, 1), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("statements", nargs="*", help="such as R3; all by default")
    chosen = parser.parse_args(arguments).statements
    wanted = [mutation for mutation in MUTATIONS if mutation.statement in chosen or not chosen]
    holes = 0
    for statement in dict.fromkeys(mutation.statement for mutation in wanted):
        if not passes(statement):
            print(f"{statement}: its tests fail without any mutation")
            return 1
    for mutation in wanted:
        result = verdict(mutation)
        holes += result != "caught"
        first = mutation.old.strip().splitlines()[0]
        print(f"{mutation.statement:3} {result:9} {mutation.file}: {first}", flush=True)
    print(f"{holes} not caught")
    return int(holes > 0)


if __name__ == "__main__":
    sys.exit(main())

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
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contract_breaks import MUTATIONS, Mutation
from contract_page import proofs

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"voicehub-core": "voicehub", "voicehub-hf": "voicehub_hf"}


def passes(statement: str, mutation: Mutation | None = None) -> bool:
    """Whether the tests of a statement pass, on a copy of the package that was broken if asked to.

    Raises:
        RuntimeError: pytest did not come as far as running them.
    """
    with tempfile.TemporaryDirectory() as directory:
        if mutation is not None:
            _write_broken(mutation, Path(directory))
        environment = {**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["--rootdir", str(ROOT), "-k", f"{statement}_", *_files_of(statement)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-500:]}")
    return done.returncode == 0


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

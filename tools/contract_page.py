"""Write docs/contract.md: every promise of the Trainer and the tests that prove it.

A test proves statement R3 when its name begins with ``test_R3_``. Run
``python tools/contract_page.py`` after adding one; a test notices a page that is out of date.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "contract.md"

GROUPS: dict[str, dict[str, str]] = {
    "Support levels": {
        "S1": "Every model type has a spec that is read without torch and without weights.",
        "S2": "`native` and `preprocessed` train as they are, `custom` with an adapter of its own, "
        "`inference-only` not at all.",
        "S3": "`custom` without its adapter and `inference-only` are refused before weights load.",
        "S4": "The exact checkpoint is judged before weights exist, the loaded graph after.",
    },
    "Loading for training": {
        "L1": "`from_pretrained(..., lazy_load=True)` holds no weights.",
        "L2": "`load_for_training()` checks the runtime, loads, restores training-only state; then "
        "components are resolved.",
        "L3": "A wrapper that was loaded for inference destructively is refused.",
    },
    "Data and collation": {
        "D1": "Items are mappings with portable fields.",
        "D2": "`model_inputs` is flattened; a key on both levels is an error.",
        "D3": "The collator goes by structure: it stacks, pads, masks, keeps one phase a batch.",
        "D4": "`TTSFieldSchema` declares side, value, lengths, masks and multiples by path.",
        "D5": "Nothing is invented: no delays, alignments, noise or targets.",
        "D6": "Meaning belongs in the data set, a collator, the model's hook or an adapter; a "
        "processor is saved and never applied.",
    },
    "Recipes": {
        "R1": "A phase declares components, routes, losses, schedule and boundaries, and is valid.",
        "R2": "A step runs the phases that are due, by updates; only active routes advance.",
        "R3": "An update is the mean over the items of its window; without items micro-batches "
        "count alike.",
        "R4": "With `optimizer_step_after_phase` the weights move before the next phase, for any "
        "accumulation.",
        "R5": "Every trainable parameter has exactly one owner.",
        "R6": "A batch may name its phase; `compute_loss_func` is one forward and one loss.",
        "R7": "Factories make optimizers and schedules by route, with that route's updates.",
        "R8": "Objects, mappings, tuples with a loss are understood; fallbacks run by name only.",
        "R9": "Detached inputs and frozen components hold inside the phase and end with it.",
    },
    "Strategies and passes": {
        "G1": "A strategy owns devices, precision, backward, clipping, stepping and gathering.",
        "G2": "Graph, device, passes, proxies, optimizers, runtime: in this order.",
        "G3": "Passes persist, route what they change, and export portably or not at all.",
        "G4": "Strategies are registered and chosen by name.",
        "G5": "Equal updates for one global batch, whatever its split and lengths.",
    },
    "Checkpoints": {
        "C1": "Written beside its place, synced, renamed in one step; `.complete` comes last.",
        "C2": "Sizes and digests are checked before any use; nothing is unpickled.",
        "C3": "A resume under another plan is refused with the entries that differ.",
        "C4": "`resume_from_checkpoint=True` takes the newest complete one, a path that one.",
        "C5": "A resumed run equals the uninterrupted one, bit for bit.",
        "C6": "`save_model()` writes a portable artifact, a native export apart from it.",
        "C7": "Rotation spares the best and the newest.",
        "C8": "State of the recipe is part of checkpoints and artifacts.",
        "C9": "Uploads to a model hub are private, complete, in the background, and visible when "
        "they fail.",
    },
    "Evaluation and reporting": {
        "E1": "Evaluation runs the chosen phase in eval mode and leaves no trace in training.",
        "E2": "Reporters are callbacks; one that fails never stops a run.",
    },
    "Adding a family": {
        "A1": "A family proves gradients, ownership, update, evaluation and round trip.",
    },
}

_NAME = re.compile(r"test_([A-Z]\d)_(\w+)")
_PLACES = ("tests", "packages/*/tests", "plugins/*/tests")

HEAD = """# The contract

What the Trainer promises, and the tests that prove it: a test whose name begins with `test_R3_`
proves statement R3 and fails when the statement is broken. `python tools/contract_page.py` writes
this page, and `python tools/contract_mutations.py` breaks the code statement by statement to see
that the tests notice.
"""


@dataclass(frozen=True, order=True)
class Proof:
    """One test: the statement it proves, its file and what its name says."""

    statement: str
    file: str
    says: str


def proofs(root: Path = ROOT) -> Iterator[Proof]:
    """Tests named after a statement, in the order of their files."""
    for place in _PLACES:
        for path in sorted(root.glob(f"{place}/**/test_*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match = _NAME.fullmatch(node.name) if isinstance(node, ast.FunctionDef) else None
                if match:
                    file = path.relative_to(root).as_posix()
                    yield Proof(match[1], file, match[2].replace("_", " "))


def page(found: Sequence[Proof]) -> str:
    """The page as Markdown.

    Raises:
        ValueError: a test names a statement that there is not.
    """
    known = {name for group in GROUPS.values() for name in group}
    strangers = sorted({proof.statement for proof in found} - known)
    if strangers:
        raise ValueError(f"tests name statements that there are not: {', '.join(strangers)}")
    lines = [HEAD]
    for title, statements in GROUPS.items():
        lines.append(f"## {title}\n")
        for name, text in statements.items():
            own = [proof for proof in found if proof.statement == name]
            if not own:
                continue
            lines.append(f"**{name}.** {text}\n")
            for file in dict.fromkeys(proof.file for proof in own):
                says = "; ".join(proof.says for proof in own if proof.file == file)
                lines.append(f"- `{file}`: {says}")
            lines.append("")
        if lines[-1].startswith("## "):
            lines.pop()
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    options = parser.parse_args(arguments)
    text = page(sorted(proofs(), key=lambda proof: proof.statement))
    current = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    if options.check:
        if text != current:
            print(f"{PAGE} is out of date: run python tools/contract_page.py")
        return int(text != current)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write ``docs/support-matrix.md`` from the specs of the packages.

A test compares the page with what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from voicehub.plugins.discovery import entry_points
from voicehub.plugins.groups import CONFORMANCE, TRAINING_SPECS
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import get_training_spec
from voicehub.specs.task import SpeechTask

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "support-matrix.md"
HEAD = """# Support matrix

What the families of this repository train, as their specs declare it. This page is generated:
`python tools/support_matrix.py` writes it anew, and a test notices when that was forgotten.

| level | meaning |
|---|---|
| native | the model computes a differentiable loss of its own |
| preprocessed | differentiable; the data set must hold model-shaped tensors |
| custom | needs the specialised adapter of its package |
| inference-only | has no verified gradient path and is refused for training |
"""
SPEECH_INPUT = (
    SpeechTask.AUTOMATIC_SPEECH_RECOGNITION,
    SpeechTask.SPEAKER_EMBEDDING,
    SpeechTask.VOICE_ACTIVITY_DETECTION,
)
TABLES = (
    ("Text to speech", (SpeechTask.TEXT_TO_SPEECH,)),
    ("Speech input", SPEECH_INPUT),
    ("Audio generation", (SpeechTask.AUDIO_GENERATION,)),
)


def page() -> str:
    """Return the whole page."""
    ours = {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")}
    owners = {
        e.name: e.distribution for e in entry_points(TRAINING_SPECS) if e.distribution in ours
    }
    specs = {name: get_training_spec(name) for name in sorted(owners)}
    blocks = [HEAD]
    for title, tasks in TABLES:
        chosen = [spec for spec in specs.values() if spec.task in tasks]
        blocks.append(f"## {title}\n\n{_table(chosen, owners)}")
    blocks.append(f"## What is excluded\n\n{_exclusions(specs.values())}")
    return "\n".join(blocks)


def _table(specs: Sequence[ModelTrainingSpec], owners: dict[str, str]) -> str:
    if not specs:
        return "No family yet.\n"
    rows = [
        (
            f"`{spec.model_type}`",
            spec.summary.rstrip("."),
            f"`{owners[spec.model_type]}`",
            spec.support.value,
            ", ".join(spec.phase_map),
            ", ".join(f"`{name}`" for name in spec.architectures) or "its own",
        )
        for spec in specs
    ]
    return _markdown(("model type", "what", "package", "level", "phases", "architectures"), rows)


def _exclusions(specs: Iterable[ModelTrainingSpec]) -> str:
    """What the conformance cases say that their family cannot hold."""
    from voicehub.testing.cases import load_case

    offered = {entry.name for entry in entry_points(CONFORMANCE)}
    rows = []
    for spec in specs:
        if spec.model_type not in offered:
            rows.append((f"`{spec.model_type}`", "every check", "offers no conformance case"))
            continue
        case = load_case(spec.model_type)
        for name, reason in {**case.exemptions, **case.unreached}.items():
            rows.append((f"`{spec.model_type}`", f"`{name}`", reason))
    if not rows:
        return "Nothing: every family holds every check of the [conformance kit](plugins.md).\n"
    return _markdown(("model type", "check or parameters", "why"), rows)


def _markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---")


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

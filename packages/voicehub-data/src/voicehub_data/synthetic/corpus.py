"""Write a synthetic corpus: audio files, manifests, and ``corpus.json`` that says what it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from voicehub.errors import DataError, OptionalDependencyError, VoiceHubError
from voicehub_data.synthetic.grammar import vocabulary
from voicehub_data.synthetic.plan import SPLITS, CorpusPlan, Utterance, plan_corpus

CORPUS_FORMAT = 1
CORPUS_FILE = "corpus.json"
_SAMPLE_RATE = 16_000
_RECORDED_PACKAGES = ("espeakng-loader", "numpy", "soundfile", "soxr")


@dataclass(frozen=True)
class CorpusSummary:
    """What stands in a corpus directory.

    Attributes:
        directory: where it is.
        manifests: path of the manifest of each split.
        seconds: of audio, by split.
        rows: utterances, by split.
        digest: SHA-256 over manifests and audio: equal digests mean equal bytes.
        reused: the directory already held this corpus.
        record: all of ``corpus.json``.
    """

    directory: Path
    manifests: dict[str, Path]
    seconds: dict[str, float]
    rows: dict[str, int]
    digest: str
    reused: bool
    record: dict[str, Any]


def build_corpus(
    directory: str | Path, *, minutes: float = 20.0, seed: int = 0, overwrite: bool = False
) -> CorpusSummary:
    """Make the corpus, or find it made.

    The directory appears complete or not at all. A corpus of the same seed, length and package
    versions that stands there already is kept and returned with ``reused=True``.

    Args:
        directory: to create.
        minutes: of training audio; each evaluation split adds an eighth.
        seed: of sentences, voices and levels.
        overwrite: replace a corpus of other settings. Nothing but a corpus is ever replaced.

    Raises:
        OptionalDependencyError: espeak-ng is not installed.
        DataError: the directory holds something else.
        ConfigurationError: ``minutes`` is out of range.
    """
    target = Path(directory).expanduser().resolve()
    plan = plan_corpus(minutes=minutes, seed=seed)
    wanted = _identity(plan)
    standing = _standing_corpus(target)
    if standing is not None and all(standing.get(key) == wanted[key] for key in wanted):
        return _summary(target, standing, reused=True)
    if target.exists() and not overwrite:
        raise DataError(_occupied_message(target, standing, wanted))
    if target.exists() and standing is None and any(target.iterdir()):
        raise DataError(
            f"{target} holds files but no {CORPUS_FILE}: it is not a corpus of ours and is not "
            "replaced, whatever --overwrite says. Choose another directory."
        )
    if util.find_spec("espeakng_loader") is None:
        raise OptionalDependencyError(
            "The synthetic corpus is spoken by espeak-ng, which is not installed. "
            'Install it with: pip install "voicehub-data[synth]"'
        )
    with _complete_or_absent(target) as draft:
        record = _write(draft, plan, wanted)
    return _summary(target, record, reused=False)


def _identity(plan: CorpusPlan) -> dict[str, Any]:
    """What decides the bytes: two corpora with equal identities on one machine are equal."""
    planned = json.dumps([asdict(u) for u in plan.utterances], sort_keys=True)
    return {
        "format": CORPUS_FORMAT,
        "seed": plan.seed,
        "minutes": plan.minutes,
        "sample_rate": _SAMPLE_RATE,
        "plan_digest": hashlib.sha256(planned.encode()).hexdigest(),
        "packages": {name: _version(name) for name in _RECORDED_PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _standing_corpus(target: Path) -> dict[str, Any] | None:
    path = target / CORPUS_FILE
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        return None
    if not isinstance(record, dict) or not all(
        (target / f"{split}.jsonl").is_file() for split in SPLITS
    ):
        return None
    return record


def _occupied_message(target: Path, standing: dict[str, Any] | None, wanted: dict[str, Any]) -> str:
    if standing is None:
        return (
            f"{target} exists and is no synthetic corpus. Choose a directory that does not exist."
        )
    changed = [
        f"{key}: there {standing.get(key)!r}, asked {wanted[key]!r}"
        for key in wanted
        if standing.get(key) != wanted[key]
    ]
    return (
        f"{target} holds another synthetic corpus ({'; '.join(changed)}). "
        "Choose another directory, or replace it with --overwrite."
    )


@contextmanager
def _complete_or_absent(target: Path) -> Iterator[Path]:
    """A draft beside ``target`` that takes its place when the block ends without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.incomplete-", dir=target.parent))
    draft.chmod(0o755)  # mkdtemp makes it private to this user
    try:
        yield draft
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write(draft: Path, plan: CorpusPlan, identity: dict[str, Any]) -> dict[str, Any]:
    spoken = _speak(draft, plan)
    splits: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        pairs = [(u, s) for u, s in zip(plan.utterances, spoken, strict=True) if u.split == split]
        lines = [json.dumps(_row(utterance, answer["frames"])) for utterance, answer in pairs]
        (draft / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        splits[split] = {
            "rows": len(pairs),
            "seconds": round(sum(answer["frames"] for _, answer in pairs) / _SAMPLE_RATE, 3),
            "sentences": len({utterance.text for utterance, _ in pairs}),
            "speakers": sorted({utterance.voice.name for utterance, _ in pairs}),
        }
    record = {
        **identity,
        "synthesizer": {"name": "espeak-ng", "version": spoken[0]["version"]},
        "words": len(vocabulary()),
        "splits": splits,
        "digest": _digest(draft),
    }
    (draft / CORPUS_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def _audio_path(utterance: Utterance) -> str:
    return f"audio/{utterance.split}/{utterance.id}.flac"


def _row(utterance: Utterance, frames: int) -> dict[str, Any]:
    return {
        "id": utterance.id,
        "audio_filepath": _audio_path(utterance),
        "duration": round(frames / _SAMPLE_RATE, 6),
        "text": utterance.text,
        "speaker": utterance.voice.name,
        "language": "en",
    }


def _speak(draft: Path, plan: CorpusPlan) -> Sequence[dict[str, Any]]:
    """Have a fresh process speak the plan; see ``speak`` for why it is one."""
    jobs = [
        {
            "path": str(draft / _audio_path(utterance)),
            "text": utterance.text,
            "voice": asdict(utterance.voice),
            "rate": utterance.rate,
            "pitch": utterance.pitch,
            "gain_db": utterance.gain_db,
        }
        for utterance in plan.utterances
    ]
    child = subprocess.run(
        [sys.executable, "-m", "voicehub_data.synthetic.speak"],
        input=json.dumps({"seed": plan.seed, "jobs": jobs}),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    try:
        answer = json.loads(child.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise VoiceHubError(
            f"The process that speaks the corpus ended with status {child.returncode} and no "
            f"answer. Its last words: {child.stderr.strip()[-500:] or 'none'}"
        ) from None
    if "error" in answer:
        missing = answer["kind"] == OptionalDependencyError.__name__
        raise (OptionalDependencyError if missing else VoiceHubError)(answer["error"])
    spoken: Sequence[dict[str, Any]] = answer["spoken"]
    return spoken


def _digest(directory: Path) -> str:
    """SHA-256 over the relative path and content of every file, in order of path."""
    total = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        total.update(path.relative_to(directory).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _summary(target: Path, record: dict[str, Any], *, reused: bool) -> CorpusSummary:
    splits = record["splits"]
    return CorpusSummary(
        directory=target,
        manifests={split: target / f"{split}.jsonl" for split in SPLITS},
        seconds={split: splits[split]["seconds"] for split in SPLITS},
        rows={split: splits[split]["rows"] for split in SPLITS},
        digest=record["digest"],
        reused=reused,
        record=record,
    )

"""``stages.json``: which stages of a chain are finished, with what settings, from which weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voicehub.cli.output import UsageError, jsonable
from voicehub.cli.run_record import replace_file
from voicehub.errors import ConfigurationError

CHAIN_FILE = "stages.json"
CHAIN_FORMAT = 1
_SHOWN = 6

#: Settings that watch, save or speed up: a finished stage would have had the same weights.
_WITHOUT_EFFECT = frozenset(
    {"name", "resume", "init_from"}
    | {
        f"training.{name}"
        for name in (
            "output_dir",
            "overwrite_output_dir",
            "run_name",
            "strategy",
            "ddp_timeout",
            "dataloader_num_workers",
            "dataloader_pin_memory",
            "dataloader_prefetch_factor",
            "logging_strategy",
            "logging_steps",
            "logging_first_step",
            "report_to",
            "reporter_options",
            "media_total_limit",
            "save_strategy",
            "save_steps",
            "save_total_limit",
            "save_best_limit",
            "push_to_hub",
            "hub_model_id",
            "hub_private_repo",
            "hub_strategy",
        )
    }
)


@dataclass(frozen=True)
class FinishedStage:
    """One stage that ended.

    Attributes:
        name: of the stage.
        folder: its run directory, relative to the chain's.
        config: its resolved configuration, without credentials.
        init_from: path and SHA-256 of the weights it started from; None for the first, as a rule.
        model: SHA-256 of its final model.
        steps: updates made.
        seconds: of training in its last session.
        metrics: of the weights that were saved.
    """

    name: str
    folder: str
    config: dict[str, Any]
    init_from: dict[str, Any] | None
    model: str
    steps: int
    seconds: float
    metrics: dict[str, float]


def read_chain(directory: Path) -> list[FinishedStage]:
    """The finished stages of the chain in ``directory``; empty where none has ended.

    Raises:
        ConfigurationError: the record cannot be read, or a newer version wrote it.
    """
    path = directory / CHAIN_FILE
    if not path.is_file():
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["format"]
        if version != CHAIN_FORMAT:
            raise ConfigurationError(
                f"{path} has format {version!r}; this VoiceHub reads {CHAIN_FORMAT}. Update "
                "voicehub-core."
            )
        return [FinishedStage(**entry) for entry in document["finished"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"{path} is damaged ({type(error).__name__}: {error}), so it is not known which stages "
            "are finished. Choose another training.output_dir, or start anew with "
            "training.overwrite_output_dir=true."
        ) from error


def write_chain(directory: Path, finished: Sequence[FinishedStage]) -> None:
    """Replace the record in one step."""
    entries = [jsonable(asdict(stage)) for stage in finished]
    document = {"format": CHAIN_FORMAT, "finished": entries}
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    replace_file(directory / CHAIN_FILE, text + "\n")


def check_finished(
    finished: Sequence[FinishedStage],
    names: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    directory: Path,
) -> None:
    """Refuse to go on from stages that are no longer what the preset says.

    Args:
        finished: what the record holds.
        names: of the chain's stages now.
        configs: their resolved configurations now, without credentials.
        directory: of the chain.

    Raises:
        UsageError: another stage stands in the place of a finished one, or its settings differ.
    """
    lines = []
    for position, stage in enumerate(finished):
        now = names[position] if position < len(names) else None
        if now != stage.name:
            found = "there is none" if now is None else f"stage '{now}'"
            lines.append(f"stage {position + 1} was '{stage.name}', now {found}")
            break
        lines += [
            f"stage '{stage.name}': {key} was {was!r}, now {is_!r}"
            for key, was, is_ in _differences(stage.config, jsonable(configs[position]))
        ]
    if not lines:
        return
    more = f"\n  ... and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    listed = "\n".join(f"  - {line}" for line in lines[:_SHOWN])
    raise UsageError(
        f"{directory} holds stages that are finished, and the settings have changed since:\n"
        f"{listed}{more}\nRestore them to go on, choose another training.output_dir=PATH, or start "
        "the chain anew with training.overwrite_output_dir=true and without resume."
    )


def _differences(was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    before, after = dict(_flat(was)), dict(_flat(now))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key) and not _watches(key):
            yield key, before.get(key), after.get(key)


def _watches(key: str) -> bool:
    parts = key.split(".")
    return any(".".join(parts[:end]) in _WITHOUT_EFFECT for end in range(1, len(parts) + 1))


def _flat(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{above}.{key}" if above else str(key))
    else:
        yield above, value

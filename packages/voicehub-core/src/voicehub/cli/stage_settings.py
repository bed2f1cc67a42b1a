"""The section ``stages`` of a preset: each stage's settings laid over those of the preset.

Precedence: preset < its groups < experiments < stage < what is typed for all stages
(``training.max_steps=2``) < what is typed for one (``stages.head.training.max_steps=2``).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

STAGES = "stages"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")

#: What the chain decides, or what all stages must share, and what to do instead.
_NOT_OF_A_STAGE = {
    "init_from": "a stage starts from the model of the stage before it; the first one from the "
    "init_from of the preset",
    "resume": "give resume for the whole chain",
    "name": "a stage is called by the preset's name and its own",
    "family": "all stages train one model",
    "model_type": "all stages train one model",
    STAGES: "stages cannot be nested",
    "training.output_dir": "each stage has a folder of its own below the preset's "
    "training.output_dir",
    "training.overwrite_output_dir": "give training.overwrite_output_dir for the whole chain",
}


def check_stages(stages: Any, assignments: Sequence[str], in_files: Iterable[str]) -> None:
    """Check the section ``stages`` as composed, before anything is laid over anything.

    Args:
        stages: the section, as plain data.
        assignments: what was typed on the command line.
        in_files: names of the stages that YAML files declare.

    Raises:
        ConfigurationError: it is no mapping of names to settings, a name cannot be a folder's, a
            stage sets what is not a stage's to set, or one that no file declares was typed.
    """
    if not isinstance(stages, Mapping):
        raise ConfigurationError(
            f"'{STAGES}' must map the name of each stage to its settings, found "
            f"{type(stages).__name__}."
        )
    declared = list(in_files)
    for name in _typed_stages(assignments):
        if name not in declared:
            raise ConfigurationError(
                f"There is no stage '{name}' (from the command line). This preset's stages: "
                f"{', '.join(declared) or 'none'}.{did_you_mean(name, declared)}"
            )
    for name, settings in stages.items():
        if not _NAME.fullmatch(str(name)):
            raise ConfigurationError(
                f"'{STAGES}.{name}': a stage's name becomes the name of its folder. Use small "
                "letters, digits, - and _."
            )
        if settings is not None and not isinstance(settings, Mapping):
            raise ConfigurationError(
                f"'{STAGES}.{name}' must hold settings of the preset, found {settings!r}."
            )
        for key, instead in _NOT_OF_A_STAGE.items():
            if _find(settings or {}, key.split(".")) is not None:
                raise ConfigurationError(f"'{STAGES}.{name}.{key}' cannot be set: {instead}.")


def settings_of(name: str, stages: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """What stage ``name`` lays over the preset, without what the command line decides for all."""
    prefix = f"{STAGES}.{name}."
    typed = [item.lstrip("+~").split("=", 1)[0] for item in assignments]
    own = [key.removeprefix(prefix) for key in typed if key.startswith(prefix)]
    settings = copy.deepcopy(dict(stages[name] or {}))
    for key in typed:
        if key != STAGES and not key.startswith(f"{STAGES}."):
            _take_out(settings, key.split("."), keep=own)
    return settings


def _typed_stages(assignments: Sequence[str]) -> list[str]:
    keys = [item.lstrip("+").split("=", 1)[0] for item in assignments if not item.startswith("~")]
    return [key.split(".")[1] for key in keys if key.startswith(f"{STAGES}.")]


def _find(settings: Mapping[str, Any], path: Sequence[str]) -> tuple[Any] | None:
    """The value at a path, in a tuple of one; None where there is none."""
    current: Any = settings
    for part in path:
        if not isinstance(current, Mapping) or part not in current:
            return None
        current = current[part]
    return (current,)


def _take_out(
    settings: dict[str, Any], path: Sequence[str], keep: Sequence[str], above: str = ""
) -> None:
    """Remove what a stage says at ``path``, below it, or in place of a section above it."""
    head, rest = path[0], path[1:]
    if head not in settings:
        return
    dotted = f"{above}{head}"
    if isinstance(settings[head], dict) and rest:
        _take_out(settings[head], rest, keep, f"{dotted}.")
    elif isinstance(settings[head], dict):
        for key in list(settings[head]):
            _take_out(settings[head], [key], keep, f"{dotted}.")
    elif not any(dotted == key or dotted.startswith(f"{key}.") for key in keep):
        del settings[head]

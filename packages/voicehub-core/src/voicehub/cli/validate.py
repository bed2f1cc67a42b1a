"""Check a composed configuration against the family's pydantic model.

Each problem names the key, the nearest valid one or the expected type, and the file (or the
command line) that the key came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from voicehub.cli.compose import Composition, option_groups
from voicehub.cli.key_paths import (
    Key,
    all_keys,
    alternatives,
    fields_at,
    fields_of,
    resolve_location,
    type_name,
)
from voicehub.cli.output import UsageError
from voicehub.cli.stage_settings import STAGES
from voicehub.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from voicehub.specs.model import ModelTrainingSpec
    from voicehub.trainer.run_config import RunConfig

COMMAND_LINE = "command line"
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_NO_SECTION = frozenset({"model_type", "model_attributes_type", "dict_type", "dataclass_type"})
_SHOWN = 8  # settings of a section that was given as one value
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a configuration."""

    key: str
    kind: str  # unknown, missing or invalid
    source: str
    message: str
    nearest: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For the JSON error."""
        return {
            "key": self.key,
            "kind": self.kind,
            "source": self.source,
            "message": self.message,
            "nearest": self.nearest,
        }


def validate_run(composition: Composition) -> tuple[ModelTrainingSpec, RunConfig]:
    """The spec of the composed model type, and the validated configuration.

    Raises:
        UsageError: a key is unknown, missing or of the wrong type, or the model type is unknown.
    """
    from pydantic import ValidationError

    from voicehub.plugins.loading import resolve_reference

    spec = _spec_of(composition)
    if not spec.config_class:
        raise UsageError(f"'{spec.model_type}' has no configuration for `voicehub train`.")
    config_class = cast("type[RunConfig]", resolve_reference(spec.config_class))
    given = {problem.key: problem for problem in _not_given(composition)}
    try:
        config = config_class.model_validate(composition.values)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [_problem(detail, config_class, composition) for detail in details]
        raise _failure(composition, [*_merged(problems, given)]) from None
    if given:
        raise _failure(composition, list(given.values()))
    return spec, config


def check_named_parts(config: RunConfig) -> None:
    """Find what ``training`` asks of installed packages by name, before any of it is built.

    Raises:
        ConfigurationError: no installed package offers that reporter.
        UnknownStrategyError: or that strategy.
    """
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.reporters import check_reporters_known

    check_reporters_known(config.training)
    if config.training.strategy != TrainingArguments.__dataclass_fields__["strategy"].default:
        from voicehub.strategies.registry import get_training_strategy  # imports torch

        get_training_strategy(config.training.strategy)


def validate_stages(composition: Composition) -> list[tuple[ModelTrainingSpec, RunConfig]]:
    """``validate_run`` of every stage of a chain, so that the last one cannot fail after days.

    Raises:
        UsageError: lists what is wrong with all stages.
    """
    checked = [_checked(stage) for stage in composition.stages]
    failures = [result for result in checked if isinstance(result, UsageError)]
    if failures:
        problems = [problem for error in failures for problem in error.problems]
        raise UsageError("\n".join(map(str, failures)), problems=problems)
    return [result for result in checked if not isinstance(result, UsageError)]


def _checked(stage: Composition) -> tuple[ModelTrainingSpec, RunConfig] | UsageError:
    try:
        return validate_run(stage)
    except UsageError as error:
        return error


def _spec_of(composition: Composition) -> ModelTrainingSpec:
    from voicehub.specs.registry import get_training_spec

    values, preset = composition.values, composition.preset
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise UsageError(
            f"Preset '{preset.name}' ({preset.path}) sets no model_type, so the family that it "
            "configures is not known."
        )
    try:
        spec = get_training_spec(model_type)
    except KeyError as error:
        source = origin_of(composition, ("model_type",))
        text = error.args[0] if error.args else str(error)
        raise UsageError(f"model_type = '{model_type}' ({source}): {text}") from None
    if values.get("family", spec.family) != spec.family:
        raise UsageError(
            f"family = '{values['family']}' ({origin_of(composition, ('family',))}), but "
            f"model_type '{model_type}' belongs to the family '{spec.family}'."
        )
    return spec


def origin_of(composition: Composition, path: Sequence[Key]) -> str:
    """The command line or the file that set the key at ``path``, the strongest that did."""
    if composition.stage is not None:
        own = _set_at(composition, (STAGES, composition.stage, *path))
        if own is not None:
            return own if own.startswith(COMMAND_LINE) else f"{STAGES}.{composition.stage} of {own}"
    return _set_at(composition, path) or _shown(composition.preset.path)


def _set_at(composition: Composition, path: Sequence[Key]) -> str | None:
    dotted = ".".join(str(part) for part in path)
    for override in reversed(composition.assignments):
        key = override.lstrip("+~").split("=", 1)[0]
        if dotted == key or dotted.startswith(f"{key}."):
            return f"{COMMAND_LINE}: {override}"
    for source in reversed(composition.sources):
        below = _below(dotted, source.package)
        if below is not None and _holds(source.content, below):
            return _shown(source.path)
    return None


def _below(dotted: str, package: str) -> list[str] | None:
    """The keys of ``dotted`` inside a file whose content went to ``package``."""
    if dotted == package:
        return []
    prefix = f"{package}." if package else ""
    return dotted[len(prefix) :].split(".") if dotted.startswith(prefix) else None


def _holds(content: Any, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(content, list) and part.isdigit() and int(part) < len(content):
            content = content[int(part)]
        elif isinstance(content, Mapping) and part in content:
            content = content[part]
        else:
            return False
    return True


def _shown(path: Path) -> str:
    """Relative where that is shorter to read: the user's own files."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _not_given(composition: Composition) -> list[Problem]:
    return [_required(key, origin_of(composition, key.split("."))) for key in composition.missing]


def _required(key: str, source: str) -> Problem:
    return Problem(key, "missing", source, f"'{key}' is required: give {key}=VALUE ({source})")


def _problem(detail: ErrorDetails, config_class: type, composition: Composition) -> Problem:
    path = resolve_location(composition.values, detail["loc"])
    key = ".".join(str(part) for part in path) or "(whole configuration)"
    siblings = fields_at(config_class, path[:-1]) if path else {}
    source = origin_of(composition, path)
    if detail["type"] in _UNKNOWN:
        return _unknown(key, siblings, config_class, composition, source)
    if detail["type"] in _MISSING:
        return _required(key, _shown(composition.preset.path))
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    annotation = siblings.get(str(path[-1])) if path else config_class
    is_section = any(fields_of(kind) for kind in alternatives(annotation))
    if is_section and isinstance(detail["input"], Mapping):
        # A rule about several keys together: the message names them itself.
        return Problem(key, "invalid", source, f"'{key}': {message}")
    if is_section and detail["type"] in _NO_SECTION and path:
        return _no_section(key, detail["input"], fields_at(config_class, path), composition, source)
    # A check of ours mostly says what it expects better than the type does.
    says_it = annotation is None or "expected" in message
    expected = "" if says_it else f"; expected {type_name(annotation)}"
    text = f"'{key}' = {detail['input']!r}: {message}{expected} ({source})"
    return Problem(key, "invalid", source, text)


def _no_section(
    key: str, given: Any, fields: Mapping[str, Any], composition: Composition, source: str
) -> Problem:
    """One value for a whole section: mostly an option that this preset does not have."""
    names = [f"{key}.{name}" for name in sorted(fields)]
    settings = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    groups = option_groups(composition.preset, Path.cwd())
    others = "; ".join(f"{name}={' | '.join(options)}" for name, options in groups.items())
    has = f"It has {others}." if others else "It has no options of any section."
    text = (
        f"'{key}' = {given!r}: '{key}' is a section, and this preset has no options of '{key}' to "
        f"choose from by name ({source}). {has} Set {settings}."
    )
    return Problem(key, "invalid", source, text)


def _unknown(
    key: str,
    siblings: Mapping[str, Any],
    config_class: type,
    composition: Composition,
    source: str,
) -> Problem:
    leaf = key.rsplit(".", 1)[-1]
    section = key[: -len(leaf)]
    near = nearest(leaf, siblings)
    guess = did_you_mean(key, [f"{section}{near}"]) if near else ""
    best = f"{section}{near}" if near else None
    elsewhere = [other for other in all_keys(config_class) if other.rsplit(".", 1)[-1] == leaf]
    if elsewhere and not near:
        best, guess = elsewhere[0], f" '{elsewhere[0]}' is where '{leaf}' goes."
    if section == "training." and leaf in _elsewhere_settings():
        guess, best = f" Instead: {_elsewhere_settings()[leaf]}.", None
    elif any(file.package == key and key not in siblings for file in composition.sources):
        # An experiment without the header lands below its own folder's name.
        guess = " Its first line must be '# @package _global_'."
    elif best is None and siblings:
        guess = f" Valid here: {', '.join(sorted(siblings))}."
    return Problem(key, "unknown", source, f"unknown key '{key}' ({source}).{guess}", best)


def _elsewhere_settings() -> Mapping[str, str]:
    """What to do for names that other trainers have as settings."""
    from voicehub.trainer.arguments import NOT_SETTINGS

    return NOT_SETTINGS


def _merged(problems: Sequence[Problem], given: Mapping[str, Problem]) -> list[Problem]:
    """One problem a key: a union reports one for each member, a ``???`` is reported twice."""
    merged: dict[str, Problem] = dict(given)
    for problem in problems:
        merged.setdefault(problem.key, problem)
    return list(merged.values())


def _failure(composition: Composition, problems: Sequence[Problem]) -> UsageError:
    stage = "" if composition.stage is None else f", stage '{composition.stage}',"
    head = f"The configuration of '{composition.preset.name}'{stage} is not valid"
    lines = [problem.message for problem in problems]
    text = f"{head}: {lines[0]}" if len(lines) == 1 else "\n  - ".join([f"{head}:", *lines])
    return UsageError(text, problems=[problem.as_dict() for problem in problems])

"""Compose a preset, the user's experiments and the command line with Hydra, into plain data.

A generated root config lists the package's preset and, over it, the user's one. Both the package
folder and ./configs are on Hydra's search path, so groups of either can be chosen. Hydra decides
how things merge; what is a valid key is decided afterwards by the family's pydantic model, so that
one check with one kind of message covers YAML files and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from voicehub.cli.output import UsageError
from voicehub.cli.preset_files import USER_DIRECTORY, Preset, families, family_root, find_preset
from voicehub.cli.stage_settings import STAGES, check_stages, settings_of
from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

_ROOT = "voicehub_run"
_MISSING = "???"
EXTENDS = "extends"

# `key=value`, `+key=value`, `++key=value`, `~key` with a dotted, group or `group@package` key.
_OVERRIDE = re.compile(r"(?P<prefix>~|\+\+|\+|)(?P<key>[^=+~\s][^=\s]*)(?P<value>=.*)?", re.DOTALL)


@dataclass(frozen=True)
class SourceFile:
    """A file that took part, its content, and the dotted place where the content went."""

    path: Path
    package: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Composition:
    """What the parts composed to.

    ``values`` is plain data with interpolations resolved and without keys that are still to be
    given (``???``); those are listed in ``missing`` as dotted keys. ``sources`` are the files in
    order of precedence, the weakest first. ``overrides`` are as typed, ``assignments`` those of
    them that set a key and do not choose a group's option. ``stages`` are the stages of a chain in
    their order, each composed; then ``values`` is what they were laid over. ``stage`` is the name
    of the one that this is.
    """

    preset: Preset
    values: dict[str, Any]
    missing: tuple[str, ...]
    sources: tuple[SourceFile, ...]
    overrides: tuple[str, ...]
    assignments: tuple[str, ...]
    stages: tuple[Composition, ...] = ()
    stage: str | None = None


def compose_preset(name: str, overrides: Sequence[str], cwd: Path | None = None) -> Composition:
    """Compose preset ``name`` with ``overrides`` in Hydra's syntax.

    Args:
        name: ``family/preset`` of an installed package, or the path of a file below ./configs.
        overrides: e.g. ``training.learning_rate=1e-3``, ``data=my_corpus``, ``+experiments=x``.
            A dotted key may be set whether or not a YAML file lists it.
        cwd: where ./configs is looked for; the current directory by default.

    Raises:
        UsageError: no such preset or group option, or an override that cannot be parsed.
        ConfigurationError: the parts do not compose; the message names the file or the override.
    """
    cwd = (cwd or Path.cwd()).resolve()
    preset = find_preset(name, cwd)
    defaults, roots = _layers(preset, cwd)
    with _hydra(defaults, roots):
        prepared = [_prepare(override, roots) for override in overrides]
        assignments = tuple(item for item in overrides if not _chooses_option(item, roots))
        parts, sources = _compose(prepared, roots, assignments)
    whole, *stages = (
        Composition(preset, *part, sources, tuple(overrides), assignments, stage=name)
        for name, part in parts.items()
    )
    return replace(whole, stages=tuple(stages))


def _layers(preset: Preset, cwd: Path) -> tuple[list[str], list[Path]]:
    """The generated defaults list and the search path, the strongest claim on a name first."""
    user_root = (cwd / USER_DIRECTORY).resolve()
    own = [user_root] if user_root.is_dir() else []
    if not preset.is_users:
        return [preset.config], [preset.root, *own]
    if preset.root != user_root:
        own = [preset.root, *own]  # a file named by its path: what lies beside it counts, too
    head = _read_yaml(preset.path)
    base = head.get(EXTENDS)
    if base is None:
        family = head.get("family")
        shipped = [family_root(family)] if family in families() else []
        return [f"{preset.config}@_global_"], [*own, *shipped]
    extended = find_preset(str(base), cwd)
    if extended.is_users:
        raise ConfigurationError(
            f"{preset.path}: '{EXTENDS}: {base}' names {extended.path}. "
            f"'{EXTENDS}' takes a preset of an installed package."
        )
    clash = extended.root / f"{preset.config}.yaml"
    if clash.is_file():  # names are all that Hydra knows of files
        raise ConfigurationError(
            f"{preset.path} has the name of {clash}, a preset of the package that it extends: only "
            f"one of them would be found. Rename yours, e.g. my-{preset.path.name}."
        )
    return [extended.config, f"{preset.config}@_global_"], [extended.root, *own]


def _read_yaml(path: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except Exception as error:  # yaml, omegaconf and the file system each have their own
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds no mapping of keys to values.")
    return {str(key): value for key, value in content.items()}


@contextmanager
def _hydra(defaults: Sequence[str], roots: Sequence[Path]) -> Iterator[None]:
    """Hydra set up with our root config; its process-wide state is cleared afterwards."""
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    store = ConfigStore.instance()
    search = [f"file://{root}" for root in roots[1:]]
    node = {"defaults": [*defaults, "_self_"], "hydra": {"searchpath": search}}
    store.store(name=_ROOT, node=node)
    try:
        with initialize_config_dir(str(roots[0]), job_name="voicehub", version_base="1.3"):
            yield
    finally:
        store.repo.pop(f"{_ROOT}.yaml", None)
        HydraConfig.instance().cfg = None
        GlobalHydra.instance().clear()


def _prepare(override: str, roots: Sequence[Path]) -> str:
    """Let a dotted ``key=value`` set keys that no YAML file lists; leave group choices alone."""
    match = _OVERRIDE.fullmatch(override)
    if match is None or (match["value"] is None and match["prefix"] != "~"):
        raise UsageError(
            f"'{override}' is not an override. Expected key=value, e.g. "
            "training.learning_rate=1e-3, data=my_corpus or +experiments=my_run."
        )
    if match["prefix"] == "" and not _chooses_option(override, roots):
        return f"++{override}"
    return override


def _chooses_option(override: str, roots: Sequence[Path]) -> bool:
    """Whether the key is a config group, and the value one of its options."""
    group = override.lstrip("+~").split("=", 1)[0].split("@", 1)[0]
    return any((root / group).is_dir() for root in roots)


def _compose(
    overrides: list[str], roots: Sequence[Path], assignments: Sequence[str]
) -> tuple[dict[str | None, _Plain], tuple[SourceFile, ...]]:
    """What Hydra composes, as plain data: the whole under None, then each stage by name."""
    from hydra import compose
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    YAMLError: type[Exception] = import_module("yaml").YAMLError
    try:
        loader = GlobalHydra.instance().config_loader()
        parts = loader.compute_defaults_list(_ROOT, overrides, RunMode.RUN)
        used = [
            (part.config_path, part.package or "")
            for part in parts.defaults
            if part.config_path and part.config_path != _ROOT
        ]
        sources = _sources(used, roots)
        config = compose(_ROOT, overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # what ${hydra:runtime.cwd} reads
        with open_dict(config):
            config.pop("hydra")
            config.pop(EXTENDS, None)
        values: Any = OmegaConf.to_container(config, resolve=False)
        stages = values.pop(STAGES, None) or {}
        check_stages(stages, assignments, _declared_stages(sources))
        found: dict[str | None, _Plain] = {None: _plain(values)}
        for name in stages:
            found[name] = _plain(values, settings_of(name, stages, assignments))
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise _explained(error, overrides, roots) from error
    return found, sources


def _declared_stages(sources: Sequence[SourceFile]) -> list[str]:
    sections = [file.content.get(STAGES) for file in sources if not file.package]
    names = [str(name) for part in sections if isinstance(part, Mapping) for name in part]
    return list(dict.fromkeys(names))


_Plain = tuple[dict[str, Any], tuple[str, ...]]


def _plain(*layers: Mapping[str, Any]) -> _Plain:
    """Layers merged, the strongest last: values with interpolations resolved, and missing keys."""
    from omegaconf import OmegaConf

    config = OmegaConf.merge(*(OmegaConf.create(dict(layer)) for layer in layers))
    missing = tuple(sorted(OmegaConf.missing_keys(config)))
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    assert isinstance(values, dict)
    return _without_missing(values), missing


def _without_missing(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _without_missing(v) for k, v in value.items() if v != _MISSING}
    if isinstance(value, list):
        return [_without_missing(item) for item in value]
    return value


def _sources(used: Sequence[tuple[str, str]], roots: Sequence[Path]) -> tuple[SourceFile, ...]:
    """Find the files behind the parts that Hydra chose; a name found twice is an error."""
    found = []
    for config, package in used:
        if config.split("/", 1)[0] == "hydra":
            continue
        files = [root / f"{config}.yaml" for root in roots if (root / f"{config}.yaml").is_file()]
        if len(files) > 1 and "/" in config:
            raise ConfigurationError(
                f"'{config}' is both {files[0]} and {files[1]}. Rename yours, so that it is clear "
                "which one is meant."
            )
        if files:
            found.append(SourceFile(files[0], package, _read_yaml(files[0])))
    return tuple(found)


def _explained(
    error: Exception, overrides: Sequence[str], roots: Sequence[Path]
) -> ConfigurationError:
    """Hydra's and OmegaConf's errors in our words, with the nearest valid name where one helps."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(error, OverrideParseException):
        reason = str(error).splitlines()[0]
        return UsageError(
            f"override '{error.override.removeprefix('++')}' cannot be parsed: {reason}. Quote a "
            "value that holds = , : or brackets, e.g. 'name=\"a=b\"'."
        )
    whole = text = str(error).strip()
    if isinstance(error, OmegaConfBaseException):
        text = f"{text.splitlines()[0]} (key '{error.full_key}')"  # the rest is OmegaConf's own
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        wanted = error.missing_cfg_file.removesuffix(".yaml")
        group = wanted.rsplit("/", 1)[0] if "/" in wanted else ""
        options = _options(group, roots)
        where = " or ".join(str(root / group) for root in roots)
        listed = ", ".join(options) or "none"
        return UsageError(
            f"There is no '{wanted}' (looked in {where}; options of '{group}': {listed})."
            f"{did_you_mean(wanted, [f'{group}/{option}' for option in options])}"
        )
    if "multirun" in text:
        return UsageError(
            "a comma in a value starts a sweep of several runs, and `voicehub train` runs one. "
            "Write a list as [a,b]; quote a text with a comma."
        )
    given = [item for item in overrides if item.lstrip("+~").split("=")[0] in whole]
    blame = f" (from the command line: {', '.join(o.removeprefix('++') for o in given)})"
    return ConfigurationError(f"{text}{blame if given else ''}")


def option_groups(preset: Preset, cwd: Path) -> dict[str, list[str]]:
    """The groups that a preset's overrides may choose options of by name, and those options."""
    _, roots = _layers(preset, cwd.resolve())
    folders = {path.name for root in roots for path in root.iterdir() if path.is_dir()}
    found = {group: _options(group, roots) for group in sorted(folders)}
    return {group: options for group, options in found.items() if options}


def _options(group: str, roots: Sequence[Path]) -> list[str]:
    return sorted({path.stem for root in roots for path in (root / group).glob("*.yaml")})

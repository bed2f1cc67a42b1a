"""transformers models from their configuration alone, for plans."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any
from unittest import mock

from voicehub.plugins.hooks import hookimpl

#: Arguments of ``from_pretrained`` that say where a configuration is.
_WHERE = ("revision", "local_files_only", "subfolder", "cache_dir", "token", "trust_remote_code")
#: Where transformers defines what models are loaded by.
_MODELS = "transformers.modeling_utils"
_NOTHING_MISSING = (
    "missing_keys",
    "unexpected_keys",
    "mismatched_keys",
    "error_msgs",
    "conversion_errors",
)


@hookimpl
def voicehub_without_weights() -> list[AbstractContextManager[None]]:
    """Hook: how plans keep transformers from reading weights, and data sets from the hub."""
    return [weightless(), as_kept()]


@contextmanager
def as_kept() -> Iterator[None]:
    """Within, ``datasets`` takes what it keeps and asks the hub for nothing newer."""
    library = sys.modules.get("datasets")
    if library is None:  # whoever looked for a data set has imported it
        yield
        return
    with mock.patch.object(library.config, "HF_HUB_OFFLINE", True):
        yield


@contextmanager
def weightless() -> Iterator[None]:
    """Within, ``from_pretrained`` of any transformers model builds it as its config says.

    Only ``config.json`` is read or fetched. Every weight counts as found. transformers is not
    imported for it: a recipe that does without it plans without it.
    """
    with ExitStack() as stack:

        def change(models: ModuleType) -> None:
            changed = classmethod(_from_config)
            stack.enter_context(
                mock.patch.object(models.PreTrainedModel, "from_pretrained", changed)
            )

        if _MODELS in sys.modules:
            change(sys.modules[_MODELS])
        else:
            finder = _ChangedWhenImported(change)
            sys.meta_path.insert(0, finder)
            stack.callback(sys.meta_path.remove, finder)
        yield


class _ChangedWhenImported(MetaPathFinder):
    """Lets a module be found as always, and changes it once it stands."""

    def __init__(self, change: Callable[[ModuleType], None]) -> None:
        self._change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODELS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _from_config(
    cls: Any,
    pretrained_model_name_or_path: Any,
    *positional: Any,
    config: Any = None,
    dtype: Any = None,
    output_loading_info: bool = False,
    **options: Any,
) -> Any:
    if config is None or not hasattr(config, "to_dict"):
        where = {name: options[name] for name in _WHERE if name in options}
        config = cls.config_class.from_pretrained(pretrained_model_name_or_path, **where)
    chosen = getattr(config, "dtype", None) if dtype in (None, "auto") else dtype
    model = cls._from_config(config, **({} if chosen is None else {"dtype": chosen})).eval()
    if not output_loading_info:
        return model
    return model, {name: set() for name in _NOTHING_MISSING}

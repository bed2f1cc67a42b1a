"""transformers models from their configuration alone, for plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from voicehub.plugins.hooks import hookimpl

#: Arguments of ``from_pretrained`` that say where a configuration is.
_WHERE = ("revision", "local_files_only", "subfolder", "cache_dir", "token", "trust_remote_code")
_NOTHING_MISSING = (
    "missing_keys",
    "unexpected_keys",
    "mismatched_keys",
    "error_msgs",
    "conversion_errors",
)


@hookimpl
def voicehub_without_weights() -> list[AbstractContextManager[None]]:
    """Hook: how plans keep transformers from reading weights."""
    return [weightless()]


@contextmanager
def weightless() -> Iterator[None]:
    """Within, ``from_pretrained`` of any transformers model builds it as its config says.

    Only ``config.json`` is read or fetched. Every weight counts as found.
    """
    from transformers import PreTrainedModel

    with mock.patch.object(PreTrainedModel, "from_pretrained", classmethod(_from_config)):
        yield


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

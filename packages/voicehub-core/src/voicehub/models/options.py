"""Options of one call over the settings that a model keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

S = TypeVar("S", bound=BaseModel)


def with_options(
    settings: S, options: Mapping[str, Any], what: str, *, also: Iterable[str] = ()
) -> S:
    """Return settings in which the options of a call replace their own.

    Args:
        settings: The model's own; they stay as they are.
        options: By the names of its fields.
        what: What is asked for, for messages, such as ``"synthesis"``.
        also: Options that the caller takes beside these, for suggestions.

    Raises:
        ConfigurationError: an option is unknown (the nearest is named), or has a wrong value.
    """
    known = type(settings).model_fields
    for name in options:
        if name not in known:
            raise ConfigurationError(
                f"unknown {what} option {name!r}.{did_you_mean(name, (*known, *also))}"
            )
    try:
        return type(settings).model_validate({**settings.model_dump(), **options})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f" {part}" for part in first["loc"][:1])
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{what} option{where}: {message}.") from None

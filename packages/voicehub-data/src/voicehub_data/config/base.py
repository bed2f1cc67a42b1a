"""What all configuration models share: unknown keys are errors that name the nearest valid one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub.trainer.section import Section


class DataModel(Section):
    """Base of the models here: unknown keys are errors, values are not mutated by accident."""

    model_config = ConfigDict(validate_assignment=True)

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Self:
        """Validate a mapping.

        Raises:
            ConfigurationError: an unknown key (with the nearest valid one) or a wrong value.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            lines = [_describe(cls, item) for item in error.errors(include_url=False)]
            raise ConfigurationError(f"{cls.__name__}: " + "; ".join(lines)) from None


def _describe(model: type[BaseModel], item: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        hint = (
            did_you_mean(str(item["loc"][-1]), model.model_fields) if len(item["loc"]) == 1 else ""
        )
        return f"unknown key {key!r}.{hint}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{key}: {message} (got {item['input']!r})" if key else message

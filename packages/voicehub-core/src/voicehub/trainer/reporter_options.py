"""Settings of reporters: ``reporter_options={"wandb": {"project": "x"}}``.

The settings of a reporter belong to the reporter: its own model says which there are, and an
unknown one is an error that suggests the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from voicehub.errors import ConfigurationError
from voicehub.trainer.validation import explain_validation_error

if TYPE_CHECKING:
    from pydantic import BaseModel

    from voicehub.trainer.arguments import TrainingArguments

    Model = TypeVar("Model", bound=BaseModel)

# Documented names of TrainingArguments, and the option of which reporter each is.
ALIASES = {
    f"wandb_{option}": ("wandb", option)
    for option in ("project", "entity", "group", "tags", "notes", "mode", "log_model")
}


def fold_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of TrainingArguments with ``wandb_project=x`` as an entry of the options.

    Raises:
        ValueError: an option is given in both ways.
    """
    folded = {key: value for key, value in values.items() if key not in ALIASES}
    given = {key: value for key, value in values.items() if key in ALIASES and value is not None}
    if not given:
        return folded
    options = {name: dict(each) for name, each in (folded.get("reporter_options") or {}).items()}
    for key, value in given.items():
        reporter, option = ALIASES[key]
        own = options.setdefault(reporter, {})
        if option in own:
            raise ValueError(f"give {key} or reporter_options.{reporter}.{option}, not both")
        own[option] = value
    return {**folded, "reporter_options": options}


def parse_options(args: TrainingArguments, reporter: str, model: type[Model]) -> Model:
    """The options of ``reporter`` as its own pydantic ``model`` (one with ``extra="forbid"``).

    Raises:
        ConfigurationError: an option is unknown (the nearest is named) or has a wrong value.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(args.reporter_options.get(reporter, {}))
    except ValidationError as error:
        owner = f"reporter_options.{reporter}"
        raise ConfigurationError(
            explain_validation_error(error, model.model_fields, owner)
        ) from None

"""Settings that name something known: a misspelt one is found with the configuration, not later."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from voicehub.suggest import did_you_mean


def _known_normalizer(name: str) -> str:
    from voicehub_data.text.normalizer import list_normalizers

    known = list_normalizers()  # none of them is built: some need further packages
    if name not in known:
        raise ValueError(
            f"no such text normaliser, expected one of {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )
    return name


def _known_model_type(name: str) -> str:
    from voicehub.specs.registry import UnknownModelTypeError, get_training_spec

    try:
        get_training_spec(name)
    except UnknownModelTypeError as error:
        raise ValueError(f"expected a registered model type. {error}") from None
    return name


#: Name of a text normaliser.
NormalizerName = Annotated[str, AfterValidator(_known_normalizer)]
#: Name of a model type of an installed family.
ModelTypeName = Annotated[str, AfterValidator(_known_model_type)]

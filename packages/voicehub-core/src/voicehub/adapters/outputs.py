"""What a phase hands back to the Trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True, eq=False)
class SpeechTrainingOutput:
    """Result of one phase, usable as an object, a mapping or a tuple of its populated fields.

    Attributes:
        loss: Scalar float tensor, the mean over ``num_items``; None in a prediction without labels.
        logits, predictions, audio_values, hidden_states, attentions: What the model returned.
        losses: Detached components of the loss by name, before weighting, for the logs.
        num_items: What the mean was taken over (frames, tokens, utterances).
        training_phase: Name of the phase.
        optimizer_names: Routes that the phase steps.
        metadata: Model type, family, support level, phase, routes, and what a recipe adds.
    """

    loss: Tensor | None = None
    logits: Any = None
    predictions: Any = None
    audio_values: Any = None
    hidden_states: Any = None
    attentions: Any = None
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    num_items: Tensor | float | None = None
    training_phase: str | None = None
    optimizer_names: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def keys(self) -> tuple[str, ...]:
        """Names of the populated fields, in the order declared."""
        return tuple(name for name in self.__dataclass_fields__ if _populated(getattr(self, name)))

    def values(self) -> tuple[Any, ...]:
        """Values of the populated fields."""
        return tuple(getattr(self, name) for name in self.keys())

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Pairs of the populated fields."""
        return tuple((name, getattr(self, name)) for name in self.keys())

    def to_tuple(self) -> tuple[Any, ...]:
        """Same as ``values``; the loss comes first where there is one."""
        return self.values()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a populated field, or ``default``."""
        value = getattr(self, key, None) if key in self.__dataclass_fields__ else None
        return value if _populated(value) else default

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            if key not in self:
                raise KeyError(f"{key!r}; populated fields: {', '.join(self.keys())}")
            return getattr(self, key)
        return self.values()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.__dataclass_fields__ and _populated(getattr(self, str(key)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())


@dataclass(slots=True, eq=False)
class TTSTrainingOutput(SpeechTrainingOutput):
    """The output of text-to-speech recipes."""


def _populated(value: Any) -> bool:
    return value is not None and not (isinstance(value, (tuple, Mapping)) and not value)

"""Typed rules of ``TrainingArguments`` that name parameters by pattern. Imports no torch."""

from __future__ import annotations

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(config=_STRICT, frozen=True)
class FreezeRule:
    """Freeze what ``pattern`` names, in the steps ``from_step <= step < until_step``.

    Attributes:
        pattern: glob over parameter names, or a module path.
        phase: freeze only in this phase; in all phases by default.
        from_step: first step (updates done so far) at which the rule holds.
        until_step: first step at which it holds no more; None is the end of the run.
    """

    pattern: str = Field(min_length=1)
    phase: str | None = None
    from_step: int = Field(default=0, ge=0)
    until_step: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _not_empty(self) -> FreezeRule:
        if self.until_step is not None and self.until_step <= self.from_step:
            raise ValueError(
                f"freeze '{self.pattern}': until_step {self.until_step} must be after from_step "
                f"{self.from_step}"
            )
        return self

    @property
    def is_permanent(self) -> bool:
        """Whether the rule holds for the whole run and in every phase."""
        return self.phase is None and self.from_step == 0 and self.until_step is None

    def holds(self, step: int) -> bool:
        """Whether the rule holds for the update after ``step`` updates."""
        return self.from_step <= step and (self.until_step is None or step < self.until_step)

    @property
    def when(self) -> str:
        """The rule's time in words, for tables."""
        parts = [f"in {self.phase}"] if self.phase else []
        parts += [f"from step {self.from_step}"] if self.from_step else []
        parts += [f"until step {self.until_step}"] if self.until_step is not None else []
        return " ".join(parts) or "always"


@dataclass(config=_STRICT, frozen=True)
class ParamGroupRule:
    """Learning rate and decay of what ``pattern`` names; the first rule that matches decides.

    Attributes:
        pattern: glob over parameter names, or a module path.
        learning_rate: base rate of the group; schedules multiply it.
        lr_scale: instead, a factor on the rate that the parameters would have otherwise.
        weight_decay: decay of the group's matrices. Biases, norms and embeddings never decay.
    """

    pattern: str = Field(min_length=1)
    learning_rate: float | None = Field(default=None, ge=0)
    lr_scale: float | None = Field(default=None, ge=0)
    weight_decay: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_something(self) -> ParamGroupRule:
        given = (self.learning_rate, self.lr_scale, self.weight_decay)
        if self.learning_rate is not None and self.lr_scale is not None:
            raise ValueError(
                f"param_groups '{self.pattern}': learning_rate and lr_scale are both set: "
                "choose one"
            )
        if all(value is None for value in given):
            raise ValueError(
                f"param_groups '{self.pattern}' changes nothing: set learning_rate, lr_scale or "
                "weight_decay"
            )
        return self

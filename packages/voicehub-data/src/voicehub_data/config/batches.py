"""Which rows are kept, how they form batches, how batches are loaded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from voicehub_data.config.base import DataModel


class FilterConfig(DataModel):
    """Which training rows are left out. Evaluation rows are left alone unless asked for.

    Attributes:
        min_duration, max_duration: seconds; bounds are kept.
        min_chars_per_second, max_chars_per_second: rate of speech, transcript characters without
            white space over duration; outside it, text and audio rarely belong together.
        drop_empty_text: drop rows whose text is empty after white space is removed.
        max_drop_fraction: stop with an error when more than this share of the rows would go.
        apply_to_eval: filter evaluation rows too. Figures then describe the kept part alone.
    """

    min_duration: Annotated[float, Field(ge=0)] | None = 0.1
    max_duration: Annotated[float, Field(gt=0)] | None = None
    min_chars_per_second: Annotated[float, Field(ge=0)] | None = None
    max_chars_per_second: Annotated[float, Field(gt=0)] | None = None
    drop_empty_text: bool = True
    max_drop_fraction: Annotated[float, Field(ge=0, le=1)] = 0.5
    apply_to_eval: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min_duration, self.max_duration, "duration")
        _check_order(self.min_chars_per_second, self.max_chars_per_second, "chars_per_second")
        return self


def _check_order(low: float | None, high: float | None, name: str) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"min_{name} {low:g} is over max_{name} {high:g}")


class BatchConfig(DataModel):
    """How rows form batches: by number, or by a hard cap on padded seconds.

    Attributes:
        batch_size: rows a batch; exclusive with ``max_padded_seconds``.
        max_padded_seconds: cap on rows x longest row of every batch, in seconds.
        max_batch_size: cap on rows where ``max_padded_seconds`` is set.
        num_buckets: duration buckets that batches are formed in; by default as many as the amount
            of data allows, from 16 to 100.
        shuffle: draw a new order every epoch.
        drop_last: drop a last batch that is not full (``batch_size`` only).
    """

    batch_size: Annotated[int, Field(gt=0)] | None = None
    max_padded_seconds: Annotated[float, Field(gt=0)] | None = None
    max_batch_size: Annotated[int, Field(gt=0)] = 64
    num_buckets: Annotated[int, Field(gt=0)] | None = None
    shuffle: bool = True
    drop_last: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.batch_size is not None and self.max_padded_seconds is not None:
            raise ValueError("batch_size and max_padded_seconds exclude each other; set one")
        if self.max_padded_seconds is not None and self.drop_last:
            raise ValueError("drop_last applies to batch_size only")
        unread = {"max_batch_size", "num_buckets"} & self.model_fields_set
        if self.batch_size is not None and unread:
            raise ValueError(f"{', '.join(sorted(unread))} apply to max_padded_seconds only")
        return self

    @property
    def has_size(self) -> bool:
        """Whether a number or a cap is given."""
        return self.batch_size is not None or self.max_padded_seconds is not None

    def or_size(self, batch_size: int) -> BatchConfig:
        """These settings, with so many rows a batch where neither number nor cap is given."""
        return self if self.has_size else self.model_copy(update={"batch_size": batch_size})

    def homes(self, evaluation: str) -> dict[str, str]:
        """What of ``training`` is not read beside these settings -> what is set instead.

        Args:
            evaluation: the setting that holds the size of evaluation batches.
        """
        instead = {
            "per_device_eval_batch_size": evaluation,
            "dataloader_drop_last": "data.batches",
        }
        if self.has_size:
            instead["per_device_train_batch_size"] = "data.batches"
        return instead


class LoaderConfig(DataModel):
    """How batches are loaded; none of this changes what they hold.

    Attributes:
        num_workers: worker processes; 0 loads in the training process.
        prefetch_factor: batches that each worker holds ready.
        pin_memory: page-locked memory for faster copies to a GPU.
    """

    num_workers: Annotated[int, Field(ge=0)] = 0
    prefetch_factor: Annotated[int, Field(gt=0)] = 2
    pin_memory: bool = False

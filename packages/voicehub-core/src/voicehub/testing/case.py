"""What a family hands to the conformance kit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from voicehub.adapters.base import TrainingAdapter


class ConformanceCase(ABC):
    """A tiny model of one type, and samples for it, made without files or network.

    ``build`` and ``item`` are required. Everything else has a default, or belongs to one check
    that a case may decline with a reason in ``exemptions``.

    Class attributes:
        model_type: The type this case stands for.
        lengths: Shortest and longest sample that ``item`` is asked for, in units of the case's
            own choice (frames, characters, ...). They must differ enough that padding matters.
        sample_rate: Hz of the audio that the model takes; None where it takes none.
        training: Settings of the learning check, over ``LEARNING_DEFAULTS``.
        exemptions: Check name to the reason why this family cannot hold it. The check runs all
            the same: an exemption from what holds is itself a failure, so that none outlives its
            reason. An exemption from ``padding_mates`` makes the kit use batches of equal length
            elsewhere.
        unreached: Pattern of parameter names (as ``fnmatch`` has them) to the reason why no
            gradient reaches them.
    """

    LEARNING_DEFAULTS: ClassVar[dict[str, Any]] = {
        "max_steps": 60,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 8,
        "lr_scheduler_type": "linear",
    }

    model_type: ClassVar[str]
    lengths: ClassVar[tuple[int, int]] = (6, 24)
    sample_rate: ClassVar[int | None] = None
    training: ClassVar[Mapping[str, Any]] = {}
    exemptions: ClassVar[Mapping[str, str]] = {}
    unreached: ClassVar[Mapping[str, str]] = {}
    #: Loss after training over loss before, on unseen samples, at most.
    learned_ratio: ClassVar[float] = 0.8
    #: Loss after training over loss after training on shuffled targets, at most.
    shuffled_ratio: ClassVar[float] = 0.9
    #: Whether the whole model computes in float64 after ``module.double()``.
    float64: ClassVar[bool] = True

    @abstractmethod
    def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
        """Return a fresh adapter of a freshly initialised tiny model.

        The kit seeds the global generators before the call. Dropout, layer drop and any other
        draw of the layers follow ``dropout`` (none at 0). Keep it small: the whole kit runs some
        hundred updates of it.
        """

    @abstractmethod
    def item(self, length: int, seed: int) -> Any:
        """Return one sample as the family's dataset yields it, a function of its arguments.

        The target must be learnable from the input: samples of all seeds follow one rule.

        Args:
            length: Between the two ``lengths``.
            seed: Decides the content.
        """

    def collate(self, items: Sequence[Any]) -> Any:
        """Return the batch of some items; by default with the adapter's own collator."""
        from voicehub.data.collate import default_data_collator
        from voicehub.data.keyed_random import preserved_global_state

        if self._collator is None:
            # Perhaps in the middle of a run, whose draws the new model's weights must not shift.
            with preserved_global_state():
                self._collator = self.build().data_collator() or default_data_collator
        return self._collator(list(items))

    _collator: Any = None

    def shuffled(self, items: Sequence[Any], seed: int) -> list[Any]:
        """Return the items with their targets exchanged; by default the field ``labels``.

        Override it where the target lies elsewhere, or must keep the length of its input.
        """
        targets = [item["labels"] for item in items]
        moved = targets[1:] + targets[:1]
        return [{**item, "labels": target} for item, target in zip(items, moved, strict=True)]

    def dataset(self, size: int, seed: int) -> Any:
        """Return the family's own dataset with its augmentation, for the check ``workers``.

        By default one over ``item``.
        """
        from voicehub.testing.samples import CaseDataset, draw_items

        return CaseDataset(draw_items(self, size, seed))

    def reload(self, directory: Path) -> TrainingAdapter:
        """Return the adapter of an exported artifact; by default through the model's own class."""
        from voicehub.adapters.auto import AutoTrainingAdapter
        from voicehub.models.lifecycle import PreTrainedSpeechModel

        built = self.build().model
        if not isinstance(built, PreTrainedSpeechModel):
            raise NotImplementedError("The model is no wrapper: override ConformanceCase.reload().")
        model = type(built).from_pretrained(directory, model_type=self.model_type)
        return AutoTrainingAdapter.from_model(model)

    def output_lengths(self, adapter: TrainingAdapter, inputs: Any) -> Tensor:
        """Return the output lengths (B,) that the family's formula gives for a batch.

        The check ``lengths`` compares them with the time dimension of ``logits`` or
        ``predictions`` of each sample run alone.
        """
        raise NotImplementedError("The case gives no output_lengths().")

    def read_audio(self, path: Path) -> np.ndarray[Any, Any] | Tensor:
        """Return what the family makes of an audio file: samples (n,), or frames (n, features).

        The check ``sample_rate`` reads a file of the right and one of another rate.
        """
        raise NotImplementedError("The case gives no read_audio().")

    def garbage_fields(self, batch: Mapping[str, Any]) -> list[str]:
        """Return the top-level batch keys whose padding may hold anything.

        By default every floating tensor but masks.
        """
        return [
            key
            for key, value in batch.items()
            if hasattr(value, "is_floating_point")
            and value.is_floating_point()
            and value.ndim > 1
            and "mask" not in key
        ]

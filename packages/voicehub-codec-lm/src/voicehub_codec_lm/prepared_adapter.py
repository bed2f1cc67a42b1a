"""The training adapter of models that compute their own loss over prepared tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import TTSTrainingOutput
from voicehub.errors import DataError
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.phase import TrainingPhaseSpec

IGNORED = -100
#: Their loss compares the output at a position with the label of the next.
SHIFTED = frozenset({"orpheus", "llasa"})


def create_prepared_adapter(model: Any, spec: ModelTrainingSpec) -> PreparedAdapter:
    """Return the adapter of a model whose data the user prepares."""
    return PreparedAdapter(model, spec)


class PreparedAdapter(TrainingAdapter):
    """Runs the model's own forward, and says over how many labels its loss is a mean.

    Raises:
        DataError: A batch has no ``labels``, or none that counts.
    """

    def training_step_loss(self, inputs: Any, phase: TrainingPhaseSpec) -> TTSTrainingOutput:
        """Return the model's loss with the number of labels behind it."""
        items = self.counted_labels(inputs)
        output = self.forward_component(inputs, phase)
        return TTSTrainingOutput(loss=output.loss, logits=output.logits, num_items=items)

    def counted_labels(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the number of labels that are not ignored, a scalar tensor."""
        labels = inputs.get("labels")
        if not isinstance(labels, Tensor):
            raise DataError(
                f"{self.spec.model_type!r} trains on prepared batches with a tensor 'labels'; this "
                f"one has {', '.join(sorted(inputs))}. The data set must yield 'labels', with "
                f"{IGNORED} where nothing is asked for."
            )
        if self.spec.model_type in SHIFTED:
            labels = labels[..., 1:]
        return (labels != IGNORED).sum()

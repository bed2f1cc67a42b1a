"""How an evaluation is measured. Everything else the spec says already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from voicehub.adapters.base import TrainingAdapter
from voicehub.adapters.outputs import SpeechTrainingOutput


class DenoiserAdapter(TrainingAdapter):
    """Adds the metric ``noise_left``: squared error of the prediction over that of the input."""

    def evaluation_rows(
        self, output: SpeechTrainingOutput, inputs: Any, info: Mapping[str, Any]
    ) -> list[tuple[float, float]]:
        """Return the errors after and before, one pair a clip."""
        valid = inputs["mask"][:, :, None]

        def errors(guess: Any) -> list[float]:
            gaps = (guess - inputs["clean"]).masked_fill(~valid, 0.0)
            return [float(clip.square().sum()) for clip in gaps]

        return list(zip(errors(output.predictions), errors(inputs["noisy"]), strict=True))

    def evaluation_metrics(self, rows: Sequence[tuple[float, float]]) -> dict[str, float]:
        """Return the share of the noise that is left: 1 does nothing, 0 is perfect."""
        after, before = (sum(column) for column in zip(*rows, strict=True))
        return {"noise_left": after / max(before, 1e-12)}

"""The end of a run that makes the fixed prompts with the weights that were just saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from voicehub.adapters.experiment import FinalContext, FinalStep
from voicehub.errors import DataError
from voicehub.reporting.samples import SampleSheet, make_samples

if TYPE_CHECKING:
    from voicehub.models.sampling import Prompt

FOLDER = "samples"


class SampleStep(FinalStep):
    """Makes prompts into ``samples/<weights>/`` of the run, for listening and for metrics.

    Args:
        prompts: what to make.
        seed: see ``Prompt.seed_with``.
        config: the run's own resolved configuration, which the model samples by.
    """

    name: ClassVar[str] = "samples"

    def __init__(self, prompts: Sequence[Prompt], *, seed: int, config: Any) -> None:
        self.prompts = list(prompts)
        self.seed = seed
        self.config = config

    def run(self, context: FinalContext) -> Mapping[str, float]:
        """Make and write them.

        Raises:
            DataError: a prompt could not be made; the others are on disk.
        """
        context.model.configure_sampling(self.config)
        folder = context.directory / FOLDER / context.weights
        sheet = SampleSheet(folder, context.weights, context.manifest)
        make_samples(context.model, self.prompts, sheet, seed=self.seed)
        context.samples.extend(sheet.samples)
        context.sheets.append(sheet)
        if sheet.failed:
            lines = "; ".join(f"{name}: {why}" for name, why in sheet.failed.items())
            raise DataError(f"{len(sheet.failed)} of {len(self.prompts)} prompts failed: {lines}")
        return {}

"""The steps that a flow run ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from voicehub.adapters.experiment import FinalContext, FinalStep
from voicehub.errors import DataError
from voicehub.models.sampling import Prompt, make_prompts, read_prompts
from voicehub.reporting.sample_step import SampleStep
from voicehub_flow.metrics.listeners import Listeners
from voicehub_flow.metrics.measures import MEASURES, Heard, Judges
from voicehub_flow.sampling.config import AfterTrainingConfig


@dataclass(frozen=True)
class Example:
    """A prompt of the data.

    Attributes:
        prompt: what to make.
        recording: gives the recording, float32 (samples,), and its rate; called after training.
        text: of the recording, which errors of recognisers are counted against where the prompt
            has none itself; None where it is not known.
    """

    prompt: Prompt
    recording: Callable[[], tuple[Any, int]]
    text: str | None = None


class MetricStep(FinalStep):
    """One metric of the samples that were made before.

    Args:
        metric: its name.
        judges: who measures.
        examples: recordings by prompt id.
    """

    name: ClassVar[str] = "metrics"

    def __init__(self, metric: str, judges: Judges, examples: Mapping[str, Example]) -> None:
        self.metric = metric
        self.name = f"metric {metric}"  # type: ignore[misc]  # each step is one metric
        self.judges = judges
        self.examples = examples

    def run(self, context: FinalContext) -> Mapping[str, float]:
        """Measure.

        Raises:
            DataError: there is nothing to measure.
        """
        if not context.samples:
            raise DataError("no sample was made.")
        heard = [self._heard(sample) for sample in context.samples]
        return MEASURES[self.metric](heard, self.judges)

    def _heard(self, sample: Any) -> Heard:
        prompt, made = sample.prompt, sample.made
        example = self.examples.get(prompt.id)
        reference = None if example is None else example.recording()
        text = prompt.text
        if text is None and example is not None:
            text = example.text
        return Heard(prompt.id, text, made.waveform, made.sampling_rate, reference)


def spread(count: int, total: int) -> list[int]:
    """So many positions of ``total``, spread evenly, the same ones every time."""
    chosen = min(count, total)
    return [position * total // chosen for position in range(chosen)]


def final_steps(
    after: AfterTrainingConfig, config: Any, examples: Sequence[Example]
) -> list[FinalStep]:
    """Sampling, then one step a metric; none where nothing is to be made.

    Args:
        after: settings.
        config: the run's own resolved configuration, which samples are made by.
        examples: prompts of the data, taken where the settings give none.

    Raises:
        DataError: the prompts are wrong.
        ConfigurationError: a listener is not there, or of another kind.
    """
    chosen: dict[str, Example] = {}
    if isinstance(after.prompts, str):
        prompts = read_prompts(Path(after.prompts).expanduser())
    elif after.prompts:
        prompts = make_prompts(after.prompts, "after_training.prompts")
    else:
        chosen = {example.prompt.id: example for example in examples}
        prompts = [example.prompt for example in examples]
    if not prompts:
        return []
    listeners = Listeners(after.recogniser, after.embedder, recogniser_type=after.recogniser_type)
    listeners.check()
    judges = Judges(listeners, after.normalizer, after.embedding)
    sampling = SampleStep(prompts, seed=after.seed, config=config)
    return [sampling, *(MetricStep(metric, judges, chosen) for metric in after.metrics)]

"""Builds everything that ``voicehub train`` needs from a configuration."""

from __future__ import annotations

from pathlib import Path

from voicehub.adapters.experiment import Experiment, SplitReport

from voicehub_example.config import DenoiserRun
from voicehub_example.data import NoisyClips, load_clips, synthetic_clips
from voicehub_example.features import SAMPLE_RATE
from voicehub_example.model import DenoiserModel


def build_experiment(config: DenoiserRun) -> Experiment:
    """Return the experiment of a run; the model is lazy and loads no weights here."""
    model = DenoiserModel("random weights", **config.model.model_dump())
    train = _split(config, config.data.train, config.data.clips, seed=1)
    unseen = _split(config, config.data.eval, max(8, config.data.clips // 4), seed=2)
    return Experiment(
        model=model,
        train_dataset=train,
        eval_datasets={"unseen": unseen},
        data_report=[_report("train", train), _report("unseen", unseen)],
    )


def _split(config: DenoiserRun, folder: Path | None, count: int, seed: int) -> NoisyClips:
    clips = synthetic_clips(count, seed) if folder is None else load_clips(folder)
    return NoisyClips(clips, bands=config.model.bands, noise=config.data.noise)


def _report(name: str, data: NoisyClips) -> SplitReport:
    seconds = sum(len(clip) for clip in data.clips) / SAMPLE_RATE
    return SplitReport(name, total=len(data), kept=len(data), seconds=seconds)

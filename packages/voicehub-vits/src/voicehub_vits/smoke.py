"""What ``voicehub train vits/PRESET --smoke`` trains on: tones, and tiny sizes or checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_data.synthetic.tones import TONES, write_tone_corpus
from voicehub_vits.config import ArchitectureConfig
from voicehub_vits.testing import ACOUSTIC, SIZES, make_tiny_checkpoint


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data and, where the preset names a checkpoint, a tiny one.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    rate = ACOUSTIC["sampling_rate"]
    train = write_tone_corpus(directory / "train", rate=rate)
    unseen = write_tone_corpus(directory / "unseen", clips=4, rate=rate, seed=1)
    settings = [
        f"data.train={train}",
        f"data.eval={unseen}",
        f"data.cache_directory={directory / 'cache'}",
        "model.discriminator.width=0.01",
        "eval.samples=1",
        *(f"model.training_acoustic_config.{key}={value}" for key, value in ACOUSTIC.items()),
    ]
    if values["model"].get("path") is None:
        sizes = {
            key: value for key, value in SIZES.items() if key in ArchitectureConfig.model_fields
        }
        written = (f"model.architecture.{key}={value}" for key, value in sizes.items())
        return [*settings, *(text.replace(" ", "") for text in written)]
    checkpoint = make_tiny_checkpoint(directory / "checkpoint", [" ".join(TONES)])
    return [*settings, f"model.path={checkpoint}"]

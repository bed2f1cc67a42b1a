"""What ``voicehub train flow/PRESET --smoke`` trains text to speech on: tones, and tiny sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_data.synthetic.tones import TONES, write_tone_corpus
from voicehub_flow.tts.conformance import ARCHITECTURE, MEL, RATE

#: One row a symbol of the tones and one more, so that a run also shows what becomes of a new one.
_KNOWN = (" ", *list(TONES)[:-1], "x")


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data and, where the preset names a checkpoint, a tiny one.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    train = write_tone_corpus(directory / "train", rate=RATE)
    unseen = write_tone_corpus(directory / "unseen", clips=4, rate=RATE, seed=1)
    sizes = {name: value for name, value in ARCHITECTURE.items() if name != "text_layout"}
    settings = [
        f"data.train={train}",
        f"data.eval={unseen}",
        "data.batches.max_padded_seconds=8",
        "model.synthesis.steps=2",
        "model.vocoder.iterations=2",
        "after_training.metrics=[frechet_distance]",
        "model.mel.win_length=null",
        *(f"model.architecture.{key}={value}" for key, value in sizes.items()),
        *(f"model.mel.{key}={value}" for key, value in MEL.items()),
    ]
    if values["model"].get("path") is None:
        return settings
    checkpoint = make_tiny_checkpoint(directory / "checkpoint")
    return [*settings, f"model.path={checkpoint}", "model.subfolder=null"]


def make_tiny_checkpoint(directory: Path, symbols: tuple[str, ...] = _KNOWN) -> Path:
    """Write a checkpoint of tiny sizes and random weights in the published layout."""
    import torch

    from voicehub_flow.config import F5Architecture
    from voicehub_flow.text import Vocabulary
    from voicehub_flow.tts.network import DiT
    from voicehub_flow.tts.published import write_published

    sizes = F5Architecture.model_validate({**ARCHITECTURE, "text_layout": "front"})
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        module = DiT(sizes, channels=MEL["n_mels"], symbols=len(symbols))
        for parameter in module.parameters():  # those that start at zero would hide mistakes
            torch.nn.init.normal_(parameter, std=0.1)
    write_published(module, Vocabulary(symbols), directory)
    return directory

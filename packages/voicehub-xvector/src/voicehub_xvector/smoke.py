"""What ``voicehub train xvector/PRESET --smoke`` trains on: tones of voices, tiny encoders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_data.synthetic.tones import write_tone_corpus

_SHARED = ("data.speed_speakers=[]", "data.min_utterances=1", "data.sampler.max_batch_size=8")


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data and, where the preset names an encoder, a tiny one of its type.

    Args:
        values: the preset as composed, or its first stage.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    train = write_tone_corpus(directory / "train", clips=24, speakers=8)
    unseen = write_tone_corpus(directory / "unseen", clips=6, speakers=3, seed=1)
    settings = [f"data.train={train}", f"data.eval={{voices: {unseen}}}", *_SHARED]
    if values["data"]["sampler"].get("chunk_seconds") is not None:
        settings.append("data.sampler.chunk_seconds=[0.5,0.5]")
    settings += _tiny_head(values["model"]["head"])
    if values["model_type"] == "xvector-logmel":
        return settings
    from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint

    kind = str(values["model_type"]).removeprefix("xvector-")
    checkpoint = make_tiny_encoder_checkpoint(directory / "checkpoint", kind)
    return [*settings, f"model.path={checkpoint}"]


def _tiny_head(head: Mapping[str, Any]) -> list[str]:
    if head["kind"] != "resnet1d":
        return []
    layers = len(head.get("channels", (1,)))
    sizes = {
        "in_channels": 16,
        "channels": [16] * layers,
        "endpoint_channels": 16,
        "embedding_size": 8,
    }
    return [f"model.head.{name}={value}".replace(" ", "") for name, value in sizes.items()]

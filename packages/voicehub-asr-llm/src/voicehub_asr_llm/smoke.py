"""What ``voicehub train asr-llm/PRESET --smoke`` trains on: tones, and tiny random checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_asr_llm.testing import make_tiny_decoder
from voicehub_data.synthetic.tones import write_tone_corpus
from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data, an encoder and a decoder.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use them.
    """
    train = write_tone_corpus(directory / "train")
    unseen = write_tone_corpus(directory / "unseen", clips=4, seed=1)
    encoder = make_tiny_encoder_checkpoint(directory / "encoder", "granite_speech5_ctc")
    decoder = make_tiny_decoder(directory / "decoder")
    settings = [
        f"data.train={train}",
        f"data.eval={unseen}",
        "data.min_seconds=0.1",
        f"model.encoder.path={encoder}",
        f"model.decoder.path={decoder}",
        "model.generation.max_new_tokens=8",
    ]
    projector = values["model"].get("projector") or {}
    if projector.get("hidden_size"):
        settings.append("model.projector.hidden_size=32")
    return settings

"""What ``voicehub train asr-ctc/PRESET --smoke`` trains on: tones, and a tiny random checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voicehub_data.synthetic.tones import TONES, write_tone_corpus

_VOCABULARY = ("<pad>", "<unk>", "|", *TONES)
_TINY_LOG_MEL = ("hidden_size=32", "num_blocks=2", "num_heads=2", "n_mels=40", "kernel_size=5")


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Make data and, where the preset names a checkpoint, a tiny one of its type.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    train = write_tone_corpus(directory / "train")
    unseen = write_tone_corpus(directory / "unseen", clips=4, seed=1)
    settings = [f"data.train={train}", f"data.eval={unseen}", "data.batches.max_batch_size=4"]
    if values["model_type"] == "ctc-logmel":
        return [*settings, *(f"model.{setting}" for setting in _TINY_LOG_MEL)]
    from voicehub_hf.testing import make_tiny_ctc_checkpoint

    kind = str(values["model_type"]).removeprefix("ctc-")
    checkpoint = make_tiny_ctc_checkpoint(
        directory / "checkpoint", {"parakeet": "parakeet_ctc"}.get(kind, kind), _VOCABULARY
    )
    return [*settings, f"model.path={checkpoint}"]

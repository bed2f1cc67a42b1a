"""What trains in each mode, as a table: a row a parameter, a column a mode."""

from __future__ import annotations

from pathlib import Path

from voicehub_hf.testing_encoders import make_tiny_encoder_checkpoint
from voicehub_xvector.config import EncoderModelConfig, LogMelModelConfig
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.model import EncoderXVector, LogMelXVector
from voicehub_xvector.train_modes import ENCODER_MODES, NATIVE_MODES

SPEAKERS = ["ann", "bob", "cat"]
HEAD = {
    "kind": "resnet1d", "in_channels": 6, "channels": [6], "repeats": [1], "kernels": [3],
    "strides": [1], "dilations": [1], "embedding_size": 5,
}  # fmt: skip
ECAPA = {
    "kind": "ecapa", "channels": [8, 8, 8, 8, 12], "attention_channels": 4, "scales": 4,
    "se_channels": 4, "embedding_size": 5,
}  # fmt: skip
#: Golden table to the kind of model it is of.
CASES = {
    "logmel": "logmel", "logmel-ecapa": "logmel", "wav2vec2": "wav2vec2", "hubert": "hubert",
    "wavlm": "wavlm", "whisper": "whisper", "wav2vec2-bert": "wav2vec2-bert",
}  # fmt: skip
MODES = {name: NATIVE_MODES if kind == "logmel" else ENCODER_MODES for name, kind in CASES.items()}


def build(case: str, mode: str, directory: Path, **settings: object) -> XVectorModel:
    """Return a lazy wrapper that trains in a mode."""
    kind = CASES[case]
    common = {"train_mode": mode, "head": ECAPA if "ecapa" in case else HEAD, **settings}
    if kind == "logmel":
        features = {"kind": "log-mel", "n_mels": 10}
        config = LogMelModelConfig.model_validate({"features": features, **common})
        return LogMelXVector.from_config(config, SPEAKERS)
    checkpoint = directory / kind
    if not checkpoint.is_dir():
        make_tiny_encoder_checkpoint(checkpoint, kind)
    encoder = EncoderModelConfig.model_validate({"path": str(checkpoint), **common})
    return EncoderXVector.from_config(encoder, SPEAKERS, model_type=f"xvector-{kind}")


def plain(name: str) -> str:
    """A parameter's name without what peft puts around it."""
    return name.replace("base_model.model.", "").replace(".base_layer", "").replace(".default", "")


def trainable(model: XVectorModel) -> set[str]:
    """Names, without peft's parts, of what trains."""
    return {plain(name) for name, p in model.network.named_parameters() if p.requires_grad}


def matrix(case: str, directory: Path) -> str:
    """Return the table of a case, as text."""
    modes = [mode for mode in MODES[case] if mode != "frozen"]
    columns, names = {}, set()
    for mode in modes:
        model = build(case, mode, directory).load_for_training()
        columns[mode] = trainable(model)
        names |= {plain(name) for name, _ in model.network.named_parameters()}
    width = max(len(name) for name in names)
    lines = [f"# {number}: {mode}" for number, mode in enumerate(modes)]
    lines.append(" " * width + "  " + " ".join(str(n % 10) for n in range(len(modes))))
    for name in sorted(names):
        marks = " ".join("x" if name in columns[mode] else "." for mode in modes)
        lines.append(f"{name:{width}}  {marks}")
    return "\n".join(lines) + "\n"

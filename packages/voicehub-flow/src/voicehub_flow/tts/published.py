"""Published F5-TTS checkpoints: one safetensors file and ``vocab.txt``, no configuration.

Weights lie below ``ema_model.transformer``; beside them stand buffers of the mel front end and
counters of the trainer, which are left out. Sizes are the file's own, and are compared with the
configuration before anything loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from voicehub.errors import CheckpointError, CheckpointMismatchError, ConfigurationError
from voicehub.models.tensor_files import read_tensors
from voicehub_flow.config import F5Architecture, F5TTSModelConfig
from voicehub_flow.text import Vocabulary
from voicehub_flow.text.vocabulary import VOCABULARY_FILE
from voicehub_flow.tts.fetching import fetched_folder
from voicehub_flow.tts.network import DiT

WEIGHTS_FILE = "model.safetensors"
TEXT_TABLE, SPEAKER_TABLE = "text_embed.text_embed.weight", "speaker_embed.weight"
_PREFIX = "ema_model.transformer."
#: Not of the network: counters of the average, the mel front end, tables that are computed.
_LEFT_OUT = re.compile(r"^(initted|step|update|mel_spec\..*)$|(^|\.)(inv_freq|freqs_cis)$")
_SHOWN = 5


@dataclass(frozen=True)
class Published:
    """A published checkpoint on disk.

    Attributes:
        weights: the safetensors file.
        vocabulary: of its ``vocab.txt``.
    """

    weights: Path
    vocabulary: Vocabulary


def open_published(config: F5TTSModelConfig) -> Published:
    """Find the files of ``model.path`` and read its vocabulary; no weights are read.

    Raises:
        CheckpointError: the files are missing, several or damaged, or weights are pickles.
        CheckpointMismatchError: sizes or names are others than the configuration's, or the text
            embedding and ``vocab.txt`` differ.
    """
    assert config.path is not None
    weights = _weights_file(config)
    lower = config.text.lower
    vocabulary = Vocabulary.read(_vocabulary_file(weights), lower=lower)
    check_shapes(weights, shapes_of(weights), config, vocabulary)
    return Published(weights, vocabulary)


def own_name(key: str) -> str | None:
    """Name of a published tensor in :class:`DiT`; None for what does not belong to it."""
    name = key.removeprefix("ema_model.").removeprefix("model.")
    if _LEFT_OUT.search(name):
        return None
    return name.removeprefix("transformer.")


def shapes_of(weights: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the network's tensors, by our names, from the head of the file alone."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{weights} cannot be read: {error}") from error
    named = {own_name(key): shape for key, shape in shapes.items()}
    return {name: shape for name, shape in named.items() if name is not None}


def read_weights(weights: Path) -> dict[str, Tensor]:
    """The network's tensors by our names, float32.

    Raises:
        CheckpointError: the file cannot be read.
    """
    named = {own_name(key): tensor.float() for key, tensor in read_tensors(weights).items()}
    return {name: tensor for name, tensor in named.items() if name is not None}


def write_published(module: DiT, vocabulary: Vocabulary, directory: Path) -> None:
    """Write the published layout."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    tensors = {f"{_PREFIX}{name}": t.contiguous() for name, t in module.state_dict().items()}
    save_file(tensors, directory / WEIGHTS_FILE)
    vocabulary.save(directory)


def check_shapes(
    weights: Path,
    shapes: Mapping[str, tuple[int, ...]],
    config: F5TTSModelConfig,
    vocabulary: Vocabulary,
) -> None:
    """Compare a file with what the configuration builds.

    Raises:
        CheckpointMismatchError: names every difference, up to a few.
    """
    table = shapes.get(TEXT_TABLE)
    if table is not None and table[0] != len(vocabulary) + 1:
        raise CheckpointMismatchError(
            f"{weights}: the text embedding has {table[0]} rows, and {VOCABULARY_FILE} beside it "
            f"names {len(vocabulary)} symbols, which with the filler would be "
            f"{len(vocabulary) + 1}: every symbol would be read as another. Put the vocabulary "
            "that the checkpoint was trained with beside it; a changed one must keep its order."
        )
    wanted = _wanted(config.architecture, config.mel.n_mels, len(vocabulary))
    differing = sorted(n for n in wanted.keys() | shapes.keys() if wanted.get(n) != shapes.get(n))
    if not differing:
        return
    lines = [
        f"  - {name}: configured {wanted.get(name, 'absent')}, in the file "
        f"{shapes.get(name, 'absent')}"
        for name in differing[:_SHOWN]
    ]
    more = f"\n  ... and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    found = described_sizes(shapes)
    raise CheckpointMismatchError(
        f"{weights} does not fit model.architecture and model.mel; {len(differing)} tensors "
        "differ:\n" + "\n".join(lines) + more + f"\nThe file's own sizes: {found}."
    )


def described_sizes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What the shapes say of the sizes, as settings."""
    found: dict[str, int | float] = {}
    dim = 0
    if "time_embed.time_mlp.0.weight" in shapes:
        dim = found["dim"] = shapes["time_embed.time_mlp.0.weight"][0]
    found["depth"] = len({n.split(".")[1] for n in shapes if n.startswith("transformer_blocks.")})
    inner = shapes.get("transformer_blocks.0.ff.ff.0.0.weight")
    if inner is not None and dim:
        found["ff_mult"] = inner[0] / dim
    if TEXT_TABLE in shapes:
        found["text_dim"] = shapes[TEXT_TABLE][1]
    blocks = {n.split(".")[2] for n in shapes if n.startswith("text_embed.text_blocks.")}
    found["conv_layers"] = len(blocks)
    if "proj_out.weight" in shapes:
        found["n_mels"] = shapes["proj_out.weight"][0]
    return ", ".join(f"{name} {value:g}" for name, value in found.items())


def _wanted(sizes: F5Architecture, channels: int, symbols: int) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        module = DiT(sizes, channels=channels, symbols=symbols)
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


# -- files -----------------------------------------------------------------------------------


def _weights_file(config: F5TTSModelConfig) -> Path:
    path = Path(str(config.path)).expanduser()
    if path.is_file():
        return _no_pickle(path)
    if path.is_dir():
        directory = path if config.subfolder is None else path / config.subfolder
    else:
        directory = fetched_folder(
            str(config.path), config.subfolder, config.revision, config.local_files_only
        )
    from voicehub_hf.loading import refuse_pickles

    if not directory.is_dir():
        raise CheckpointError(f"There is no directory {directory} to load a model from.")
    refuse_pickles(directory)
    files = sorted(directory.glob("*.safetensors"))
    if len(files) > 1:
        raise ConfigurationError(
            f"{directory} holds {len(files)} checkpoints ({', '.join(f.name for f in files)}): "
            "name one of these files in model.path."
        )
    return files[0]


def _no_pickle(path: Path) -> Path:
    if path.suffix != ".safetensors":
        raise CheckpointError(
            f"{path} is no safetensors file. Pickles can run code when read, and are refused."
        )
    return path


def _vocabulary_file(weights: Path) -> Path:
    return weights.parent / VOCABULARY_FILE

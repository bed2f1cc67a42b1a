"""Building and filling the modules of a VITS model, and the files of its artifact."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from voicehub.models.tensor_files import read_tensors, require_same_tensors, write_tensors
from voicehub_hf.pretrained_weights import load_weights, require_nothing_drawn
from voicehub_hf.processors import progress_bars
from voicehub_vits.discriminators import DurationDiscriminator, MultiDiscriminator
from voicehub_vits.network.initial import draw_weights

if TYPE_CHECKING:
    from voicehub_vits.model import VitsTTS

GENERATOR_FILE, DISCRIMINATOR_FILE = "generator.safetensors", "discriminators.safetensors"
#: Deviation of new embedding tables, as speaker tables are drawn.
_TABLE_DEVIATION = 1.0


def load_generator(wrapper: VitsTTS, *, training: bool) -> Any:
    """Return ``VitsModel`` with its tables: of the checkpoint, or of random weights."""
    from transformers import VitsModel

    config = runtime_config(wrapper, training=training)
    from_checkpoint = wrapper.config.path is not None and not wrapper._is_artifact
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(wrapper.seed)
        if from_checkpoint:
            model = _read_checkpoint(wrapper, config)
        else:
            model = VitsModel(config)
            if not wrapper._is_artifact:
                draw_weights(model, wrapper.seed)
        _add_tables(wrapper, model)
    # The blank between tokens has the padding's id; it is said, and learns.
    model.text_encoder.embed_tokens.padding_idx = None
    return model


def runtime_config(wrapper: VitsTTS, *, training: bool) -> Any:
    """The checkpoint's configuration with the run's dropout rates; layer drop is off."""
    config = copy.deepcopy(wrapper.vits_config)
    for name, value in wrapper.config.dropout.given.items():
        setattr(config, name, value)
    # It would draw from NumPy's global state, and leave whole layers without a gradient.
    config.layerdrop = 0.0
    if training and wrapper.config.speaker_table == "new" and not wrapper._is_artifact:
        config.num_speakers = len(wrapper.voices.speakers)
    return config


def _read_checkpoint(wrapper: VitsTTS, config: Any) -> Any:
    from transformers import VitsModel

    local = wrapper._fetch["local_files_only"]
    # A new speaker table has another size than the checkpoint's.
    new_table = config.num_speakers != wrapper.vits_config.num_speakers
    with progress_bars(shown=not local):
        model, drawn = load_weights(
            VitsModel,
            wrapper.name_or_path,
            config,
            dtype=torch.float32,
            ignore_mismatched_sizes=new_table,
            **wrapper._fetch,
        )
    expected = {"embed_speaker.weight"} if new_table else set()
    require_nothing_drawn(wrapper.name_or_path, "VitsModel", drawn - expected)
    return model


def _add_tables(wrapper: VitsTTS, model: Any) -> None:
    languages = wrapper.voices.languages
    if languages:
        size = model.config.speaker_embedding_size
        model.embed_language = nn.Embedding(len(languages), size)
        nn.init.normal_(model.embed_language.weight, std=_TABLE_DEVIATION)


def build_discriminators(wrapper: VitsTTS) -> tuple[Any, Any]:
    """Return the waveform and duration discriminators of random weights, None where unused."""
    config = wrapper.config
    if config.generator_only:
        return None, None
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(wrapper.seed + 1)
        waveform = MultiDiscriminator(config.discriminator.width, config.discriminator.periods)
        durations = None
        if config.duration_discriminator is not None:
            vits = wrapper.vits_config
            durations = DurationDiscriminator(
                vits.hidden_size,
                config.duration_discriminator.channels,
                vits.speaker_embedding_size,
            )
    return waveform, durations


def write_artifact_state(wrapper: VitsTTS, directory: Path) -> None:
    """Write the tensors of generator and discriminators."""
    for name, state in _parts(wrapper).items():
        write_tensors(state, directory / name)


def read_artifact_state(wrapper: VitsTTS, directory: Path, *, training: bool) -> None:
    """Fill the modules from an artifact; discriminators only where it holds such.

    Raises:
        CheckpointError: a file cannot be read.
        CheckpointMismatchError: names or shapes differ.
    """
    _fill({"": wrapper.model}, directory / GENERATOR_FILE)
    path = directory / DISCRIMINATOR_FILE
    if training and path.is_file() and wrapper.discriminator is not None:
        modules = {"waveform.": wrapper.discriminator}
        if wrapper.duration_discriminator is not None:
            modules["durations."] = wrapper.duration_discriminator
        _fill(modules, path)


def _parts(wrapper: VitsTTS) -> dict[str, dict[str, torch.Tensor]]:
    parts = {GENERATOR_FILE: dict(wrapper.model.state_dict())}
    adversaries: dict[str, torch.Tensor] = {}
    for prefix, module in (
        ("waveform.", wrapper.discriminator),
        ("durations.", wrapper.duration_discriminator),
    ):
        if module is not None:
            adversaries.update({prefix + k: v for k, v in module.state_dict().items()})
    if adversaries:
        parts[DISCRIMINATOR_FILE] = adversaries
    return parts


def _fill(modules: dict[str, nn.Module], path: Path) -> None:
    given = read_tensors(path)
    own = {
        prefix + key: value
        for prefix, m in modules.items()
        for key, value in m.state_dict().items()
    }
    require_same_tensors(own, given, path)
    for prefix, module in modules.items():
        part = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        module.load_state_dict(part)

"""Writing what was trained, and reading it back, all or nothing.

``projector.safetensors`` holds the whole projector, its output scale included; ``adapter/`` the
low-rank adapters as peft writes them; ``encoder.safetensors`` and ``decoder.safetensors`` the
tensors of either base that have trained, if any did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.errors import CheckpointError
from voicehub.models.tensor_files import read_tensors, require_same_tensors, write_tensors
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.decoders.loading import plain
from voicehub_asr_llm.network import AsrLlmNetwork

PROJECTOR_FILE, ADAPTER_FOLDER = "projector.safetensors", "adapter"
_ADAPTER_FILE = "adapter_model.safetensors"
_BASE_FILES = {"encoder": "encoder.safetensors", "decoder": "decoder.safetensors"}


def save_parts(
    network: AsrLlmNetwork,
    config: AsrLlmModelConfig,
    directory: Path,
    carried: Iterable[str] = (),
) -> None:
    """Write what was trained.

    Args:
        network: the module.
        config: of the model.
        directory: made if it is not there.
        carried: names of base tensors that an earlier run has trained.

    Raises:
        CheckpointError: the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_tensors(network.projector.state_dict(), directory / PROJECTOR_FILE)
        for part, tensors in _changed_of_bases(network, frozenset(carried)).items():
            if tensors:
                write_tensors(tensors, directory / _BASE_FILES[part])
        if config.decoder.lora is not None:
            _save_adapter(network.decoder, config, directory / ADAPTER_FOLDER)
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be written: {error}") from error


def load_parts(
    network: AsrLlmNetwork, config: AsrLlmModelConfig, directory: Path
) -> frozenset[str]:
    """Read what ``save_parts`` wrote into a network over the same bases.

    Returns:
        Names, as in the network, of the base tensors that were replaced.

    Raises:
        CheckpointError: a file is missing or damaged.
        CheckpointMismatchError: names or shapes differ; nothing was changed.
    """
    pending: list[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]] = []
    given = read_tensors(directory / PROJECTOR_FILE)
    own = network.projector.state_dict()
    require_same_tensors(own, given, directory / PROJECTOR_FILE)
    pending.append((own, given))
    replaced: set[str] = set()
    for part, name in _BASE_FILES.items():
        if (directory / name).is_file():
            module: Any = network.encoder if part == "encoder" else plain(network.decoder)
            own, given = module.state_dict(), read_tensors(directory / name)
            known = {key: own[key] for key in given if key in own}
            require_same_tensors(known, given, directory / name)
            pending.append((own, given))
            replaced |= {f"{part}.{key}" for key in given}
    adapter = directory / ADAPTER_FOLDER / _ADAPTER_FILE
    has_adapter = config.decoder.lora is not None and adapter.is_file()
    if has_adapter:
        own, given = adapter_tensors(network.decoder), read_tensors(adapter)
        require_same_tensors(own, given, adapter)
        pending.append((own, given))
    with torch.no_grad():
        for own, given in pending:
            for name, tensor in given.items():
                own[name].copy_(tensor)
    return frozenset(replaced)


def held_files(
    network: AsrLlmNetwork, config: AsrLlmModelConfig, carried: Iterable[str] = ()
) -> list[str]:
    """Files that ``save_parts`` writes with the same arguments, as paths within the directory."""
    changed = _changed_of_bases(network, frozenset(carried))
    names = [PROJECTOR_FILE, *(_BASE_FILES[part] for part, tensors in changed.items() if tensors)]
    if config.decoder.lora is not None:
        names.append(f"{ADAPTER_FOLDER}/{_ADAPTER_FILE}")
    return names


def require_files(directory: Path, names: Iterable[str]) -> None:
    """Refuse an artifact of which a file is missing: it would be the base, or half of a model.

    Args:
        directory: of the artifact.
        names: what ``held_files`` said when it was written; none where that was not recorded.

    Raises:
        CheckpointError: names what is missing.
    """
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{directory}: {' and '.join(missing)} is missing, which was trained and saved. Copy "
            "the whole directory."
        )


def holds_decoder(directory: Path) -> bool:
    """Whether an artifact holds trained weights of the decoder itself."""
    return (directory / _BASE_FILES["decoder"]).is_file()


def saved_names(directory: Path) -> frozenset[str]:
    """Names, as in the network, of the tensors that an artifact holds, the scale left out."""
    names = {f"projector.{name}" for name in read_tensors(directory / PROJECTOR_FILE)}
    names -= {"projector.output_scale"}
    for part, file in _BASE_FILES.items():
        if (directory / file).is_file():
            prefix = "decoder." if part == "decoder" else "encoder."
            names |= {f"{prefix}{name}" for name in read_tensors(directory / file)}
    adapter = directory / ADAPTER_FOLDER / _ADAPTER_FILE
    if adapter.is_file():
        names |= {f"decoder.{_with_adapter_name(name)}" for name in read_tensors(adapter)}
    return frozenset(names)


def adapter_tensors(decoder: nn.Module) -> dict[str, Tensor]:
    """Low-rank matrices by the names that peft gives them in its files; not copied."""
    return {
        name.replace(".default.", "."): p.detach()
        for name, p in decoder.named_parameters()
        if ".lora_" in name
    }


def _with_adapter_name(name: str) -> str:
    stem, _, last = name.rpartition(".")
    return f"{stem}.default.{last}"


def _save_adapter(decoder: Any, config: AsrLlmModelConfig, directory: Path) -> None:
    for settings in decoder.peft_config.values():
        settings.base_model_name_or_path = config.decoder.path
        settings.revision = config.decoder.revision
    # "auto" would look the base up on the Hub, for a vocabulary that never changes here.
    decoder.save_pretrained(directory, save_embedding_layers=False)


def _changed_of_bases(
    network: AsrLlmNetwork, carried: frozenset[str]
) -> dict[str, dict[str, Tensor]]:
    """Tensors of the encoder and, adapters left out, of the decoder, that are not the base's."""
    decoder: Any = plain(network.decoder)
    found: dict[str, dict[str, Tensor]] = {}
    for part, module in (("encoder", network.encoder), ("decoder", decoder)):
        found[part] = {
            name: p.detach()
            for name, p in module.named_parameters()
            if (p.requires_grad and ".lora_" not in name) or f"{part}.{name}" in carried
        }
    return found

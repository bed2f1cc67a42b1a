"""Which parameters train, and at what rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from voicehub.errors import ConfigurationError
from voicehub.optim.groups import decays, undecayed
from voicehub_asr_llm.config import AsrLlmModelConfig
from voicehub_asr_llm.decoders.loading import plain
from voicehub_asr_llm.network import AsrLlmNetwork

#: State of linear-attention layers, which is no matrix of a layer although it may look like one.
_STATES = ("A_log", "dt_bias", "conv1d.weight", ".D")


def mark_trainable(network: AsrLlmNetwork, config: AsrLlmModelConfig) -> None:
    """Set ``requires_grad`` of every parameter as the configuration says.

    Raises:
        ConfigurationError: more encoder layers are to train than there are.
    """
    adapters = [p for name, p in network.decoder.named_parameters() if ".lora_" in name]
    # What the library keeps fixed (sinusoids, unused mask vectors) stays so.
    natural = {id(p) for p in network.encoder.parameters() if p.requires_grad}
    network.requires_grad_(False)
    if not config.freeze_encoder:
        layers, wanted = network.encoder.layers(), config.encoder.top_layers
        if wanted is not None and wanted > len(layers):
            raise ConfigurationError(
                f"model.encoder.top_layers is {wanted}; the encoder has {len(layers)} layers."
            )
        for part in network.top_of_encoder(wanted):
            for parameter in part.parameters():
                parameter.requires_grad_(id(parameter) in natural)
    if not config.freeze_projector:
        network.projector.requires_grad_(True)
    decoder = plain(network.decoder)
    if not config.freeze_language_model:
        decoder.requires_grad_(True)
    # A tied output layer follows its embeddings.
    decoder.get_input_embeddings().requires_grad_(not config.freeze_text_embeddings)
    for parameter in adapters:
        parameter.requires_grad_(True)


def trained_names(network: nn.Module) -> frozenset[str]:
    """Names of what trains."""
    return frozenset(name for name, p in network.named_parameters() if p.requires_grad)


def rate_groups(
    network: AsrLlmNetwork,
    config: AsrLlmModelConfig,
    named: Sequence[tuple[str, nn.Parameter]],
    args: Any,
) -> list[dict[str, Any]]:
    """Optimizer groups: each part at its rate, split into what decays and what does not.

    Biases, norms, embeddings (and heads tied to them) and states of linear attention never decay.

    Args:
        network: the module.
        config: of the model; ``None`` rates are those of ``args``.
        named: all that the route owns.
        args: the ``TrainingArguments``.
    """
    exempt = undecayed([network])
    settings: dict[str, Any] = {"encoder": config.encoder, "projector": config.projector}
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in named:
        part = name.split(".", 1)[0]
        decaying = decays(name, parameter, exempt) and not name.endswith(_STATES)
        groups.setdefault((part, decaying), []).append(parameter)
    made = []
    for (part, decaying), parameters in groups.items():
        own = settings.get(part)
        rate = args.learning_rate
        decay = args.weight_decay
        if own is not None and own.learning_rate is not None:
            rate = own.learning_rate
        if own is not None and own.weight_decay is not None:
            decay = own.weight_decay
        made.append(
            {
                "params": parameters,
                "lr": rate,
                "weight_decay": decay if decaying else 0.0,
                "name": part if decaying else f"{part} (no decay)",
            }
        )
    return made

"""Which parameters of a CTC model train."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from voicehub_hf.encoders import base_encoder, ctc_encoder, ctc_head


def feature_encoder_modules(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the front end: the convolutions over samples, W2V-BERT's feature projection, or
    Parakeet's subsampling."""
    encoder = base_encoder(model)
    return tuple(encoder.get_submodule(path) for path in ctc_encoder(model).front_end)


def freeze_feature_encoder(model: nn.Module) -> int:
    """Stop training the front end; return the number of parameters frozen.

    Group normalisation and convolutions of the front end have no running statistics; its dropout
    is turned off by putting it in evaluation mode, which a later ``model.train()`` undoes, so a
    trainer that calls it must put frozen modules back.
    """
    frozen = 0
    for module in feature_encoder_modules(model):
        # wav2vec2's front end marks its input as requiring a gradient while this is set, which
        # would keep every activation of the convolutions alive for nothing.
        mark_frozen = getattr(module, "_freeze_parameters", None)
        if callable(mark_frozen):
            mark_frozen()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            frozen += parameter.numel()
        module.eval()
    return frozen


def encoder_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield names, as in ``model.named_parameters()``, and parameters of all but the CTC head."""
    head = {id(parameter) for parameter in ctc_head(model).parameters()}
    for name, parameter in model.named_parameters():
        if id(parameter) not in head:
            yield name, parameter


def head_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield names, as in ``model.named_parameters()``, and parameters of the CTC head."""
    head = {id(parameter) for parameter in ctc_head(model).parameters()}
    for name, parameter in model.named_parameters():
        if id(parameter) in head:
            yield name, parameter


def freeze_encoder(model: nn.Module) -> int:
    """Stop training all but the CTC head; return the number of parameters frozen."""
    frozen = 0
    for _, parameter in encoder_parameters(model):
        parameter.requires_grad_(False)
        frozen += parameter.numel()
    base_encoder(model).eval()
    return frozen

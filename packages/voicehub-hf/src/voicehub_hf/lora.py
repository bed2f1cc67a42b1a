"""Low-rank adapters (Hu et al. 2021) by peft: on speech encoders, CTC models, language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import CTC_ENCODERS, ctc_encoder, unwrapped
from voicehub_hf.speech_encoders import SPEECH_ENCODERS
from voicehub_hf.wavlm_attention import call_attention_projections, restore_attention

if TYPE_CHECKING:
    from peft import PeftModel

#: Query and value projections of decoders that generate; their heads are no part of this.
_DECODER_TARGETS = ("q_proj", "v_proj")


def add_lora(
    model: nn.Module,
    rank: int = 8,
    alpha: float = 16,
    dropout: float = 0.0,
    target_modules: Sequence[str] | str | None = None,
    *,
    train_head: bool = True,
    seed: int = 0,
) -> PeftModel:
    """Freeze ``model`` and put adapters on its linear layers.

    The model is changed in place and returned inside a ``peft.PeftModel``, whose
    ``save_pretrained`` writes adapters that plain peft loads. WavLM's attention is made to call
    its projections (see :mod:`voicehub_hf.wavlm_attention`); in plain transformers merge the
    loaded adapters (``merge_and_unload``) before use.

    Args:
        model: One of the five CTC models, an encoder without a head, or a decoder that generates
            (Llama and its like, MusicGen, CSM).
        rank: r; each adapted layer gains r * (inputs + outputs) parameters.
        alpha: The update is scaled by alpha / r.
        dropout: Dropout of the adapters' input.
        target_modules: Suffixes of module names, a regular expression over whole names, or
            ``"all-linear"``; the query and value projections by default.
        train_head: Train the CTC head too, and save it with the adapters; nothing where there is
            none.
        seed: Of the adapters' first values. torch's global random state stays as it was.

    Raises:
        ConfigurationError: No module matches, or a setting is out of range; for no match the
            message lists the names that could.
    """
    from peft import LoraConfig, get_peft_model

    if rank < 1 or alpha <= 0 or not 0 <= dropout < 1:
        raise ConfigurationError(
            f"LoRA needs rank >= 1, alpha > 0 and 0 <= dropout < 1; got rank={rank}, "
            f"alpha={alpha}, dropout={dropout}."
        )
    default_targets, head_name = _adapted_parts(model)
    targets = default_targets if target_modules is None else target_modules
    if targets == "all-linear":
        targets = linear_module_suffixes(model)
    config = LoraConfig(
        r=rank,
        lora_alpha=cast(int, alpha),  # peft only divides by it
        lora_dropout=dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        modules_to_save=[head_name] if train_head and head_name is not None else None,
    )
    _check_targets(model, config, head_name)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        adapted = get_peft_model(cast(Any, model), config)
    call_attention_projections(adapted)
    return adapted


def merge_lora(model: nn.Module) -> Any:
    """Fold the adapters into the weights; return the transformers model without peft.

    The model is changed in place. A model without adapters is returned as it is.
    """
    merge = getattr(model, "merge_and_unload", None)
    if not callable(merge):
        return model
    merged: Any = merge(safe_merge=True)
    restore_attention(merged)
    return merged


def lora_parameter_count(model: nn.Module) -> int:
    """Return the number of parameters in low-rank matrices (the CTC head not included)."""
    return sum(p.numel() for name, p in model.named_parameters() if ".lora_" in name)


def linear_module_suffixes(model: nn.Module) -> list[str]:
    """Return the last name parts of the linear layers that adapters can go on, sorted.

    A CTC head and a decoder's output layer are not among them.
    """
    _, head = _adapted_parts(model)
    plain = unwrapped(model)
    output = plain.get_output_embeddings() if head is None and _generates(plain) else None
    names = {
        name.rsplit(".", 1)[-1]
        for name, module in plain.named_modules()
        if isinstance(module, nn.Linear) and module is not output
    }
    return sorted(names - {head})


def _adapted_parts(model: nn.Module) -> tuple[tuple[str, ...], str | None]:
    """Query and value projections of a model, and the name of its CTC head where it has one."""
    plain = unwrapped(model)
    architecture = type(plain).__name__
    for encoder in SPEECH_ENCODERS.values():
        if encoder.architecture == architecture:
            return encoder.lora_targets, None
    # transformers calls some CTC models generating, too.
    if architecture not in {entry.architecture for entry in CTC_ENCODERS.values()} and _generates(
        plain
    ):
        return _DECODER_TARGETS, None
    entry = ctc_encoder(model)
    return entry.lora_targets, entry.head_name


def _generates(model: Any) -> bool:
    """Whether it is a decoder of transformers."""
    can = getattr(model, "can_generate", None)
    return callable(can) and bool(can())


def _check_targets(model: nn.Module, config: Any, head_name: str | None) -> None:
    from peft import LoraConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    # Without modules_to_save, which peft would leave out of the matches without a word.
    pattern = LoraConfig(target_modules=config.target_modules)
    names = [name for name, _ in model.named_modules() if name]
    matched = [name for name in names if check_target_module_exists(pattern, name)]
    wanted = config.target_modules
    if not matched:
        shown = wanted if isinstance(wanted, str) else ", ".join(sorted(wanted))
        raise ConfigurationError(
            f"LoRA target_modules ({shown}) match no module of {type(model).__name__}. "
            f"Candidates: {', '.join(linear_module_suffixes(model))}."
        )
    if config.modules_to_save and head_name in matched:
        raise ConfigurationError(
            f"LoRA target_modules match the CTC head '{head_name}', which trains in full. "
            "Take it out of target_modules, or pass train_head=False."
        )

"""Reading checkpoints of the five CTC classes: weights from safetensors alone, no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_hf.checkpoint_config import read_config_dict
from voicehub_hf.encoders import CTC_ENCODERS, CTCEncoder, ctc_encoder
from voicehub_hf.pretrained_weights import load_weights, require_nothing_drawn
from voicehub_hf.processors import build_processor, progress_bars


class LoadedCTC(NamedTuple):
    """A checkpoint in memory.

    Attributes:
        model: The CTC model, in evaluation mode, on the CPU.
        processor: Its processor; the feature extractor alone where the checkpoint has no
            tokenizer, as self-supervised ones do not.
        encoder: The table entry of its type.
        new_parameters: Names of parameters that were drawn anew.
    """

    model: Any
    processor: Any
    encoder: CTCEncoder
    new_parameters: tuple[str, ...]


class CheckpointParts(NamedTuple):
    """What a checkpoint says of itself besides its weights.

    Attributes:
        config: Of transformers; holds the commit of a Hub checkpoint as ``_commit_hash``.
        feature_extractor: Always there.
        tokenizer: ``None`` where the checkpoint has none.
        encoder: The table entry of its type.
    """

    config: Any
    feature_extractor: Any
    tokenizer: Any
    encoder: CTCEncoder


def read_checkpoint_parts(
    directory_or_id: str | Path,
    *,
    revision: str | None = None,
    local_files_only: bool | None = None,
    model_type: str | None = None,
) -> CheckpointParts:
    """Read configuration, feature extractor and tokenizer; no weights are read or fetched.

    Arguments and errors are those of :func:`load_checkpoint`.
    """
    source, local = checkpoint_source(directory_or_id, local_files_only)
    fetch: dict[str, Any] = {"revision": revision, "local_files_only": local}
    config, encoder = _config(source, fetch, model_type)
    extractor = _feature_extractor(source, encoder, fetch)
    return CheckpointParts(config, extractor, _tokenizer(source, fetch), encoder)


def load_ctc(
    directory_or_id: str | Path,
    revision: str | None = None,
    local_files_only: bool | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Load a CTC model and its processor; see :func:`load_checkpoint`."""
    loaded = load_checkpoint(
        directory_or_id, revision=revision, local_files_only=local_files_only, **options
    )
    return loaded.model, loaded.processor


def load_checkpoint(
    directory_or_id: str | Path,
    *,
    revision: str | None = None,
    local_files_only: bool | None = None,
    model_type: str | None = None,
    vocab_size: int | None = None,
    pad_token_id: int | None = None,
    seed: int = 0,
    dtype: Any = None,
    config_overrides: Mapping[str, Any] | None = None,
) -> LoadedCTC:
    """Load a checkpoint with or without a CTC head.

    Args:
        directory_or_id: A local directory, or the id of a repository on the Hugging Face Hub.
        revision: Branch, tag or commit of a Hub id.
        local_files_only: Touch no network. By default true for a local directory only.
        model_type: Accept this type alone.
        vocab_size: Start a new head with this many outputs. ``None`` keeps the checkpoint's head
            and is refused where it has none.
        pad_token_id: CTC blank of the new head.
        seed: Of what is drawn anew. torch's global random state stays as it was.
        dtype: Data type of the weights; float32 by default, which training needs.
        config_overrides: Settings of the config to replace, such as dropout rates. Those that the
            encoder alone has (Parakeet's) are set there.

    Raises:
        ConfigurationError: The checkpoint is of another type; it has no head and no size is
            given; its config has no setting of that name.
        CheckpointError: Nothing is there, or the weights are not in safetensors files.
        CheckpointMismatchError: Weights of the encoder are missing or have other shapes.
    """
    import torch
    import transformers

    source, local = checkpoint_source(directory_or_id, local_files_only)
    fetch: dict[str, Any] = {"revision": revision, "local_files_only": local}
    config, encoder = _config(source, fetch, model_type)
    _require_head(source, config, encoder, vocab_size)
    if Path(source).is_dir():
        refuse_pickles(Path(source))
    override_settings(source, config, config_overrides or {})
    if vocab_size is not None:
        config.vocab_size = vocab_size
    if pad_token_id is not None:
        config.pad_token_id = pad_token_id
    with torch.random.fork_rng(devices=()), progress_bars(shown=not local):
        torch.manual_seed(seed)
        model_class = getattr(transformers, encoder.architecture)
        model, new = load_weights(
            model_class, source, config, dtype=dtype or torch.float32, **fetch
        )
        _require_own(source, encoder, new, new_head=vocab_size is not None)
        if vocab_size is not None:
            new |= _draw_head(getattr(model, encoder.head_name), encoder, config)
    processor = _processor(source, encoder, fetch)
    return LoadedCTC(model.eval(), processor, encoder, tuple(sorted(new)))


def checkpoint_source(name: str | Path, local_files_only: bool | None) -> tuple[str, bool]:
    """Return a directory or Hub id as text, and whether the network is left alone.

    Raises:
        CheckpointError: it can only be a directory, and there is none.
    """
    path = Path(name)
    if path.is_dir():
        return str(path), True
    local = isinstance(name, Path) or path.is_absolute() or str(name).startswith((".", "~"))
    if local or len(path.parts) > 2:
        raise CheckpointError(f"There is no directory {path} to load a model from.")
    return str(name), bool(local_files_only)


def _config(source: str, fetch: dict[str, Any], wanted: str | None) -> tuple[Any, CTCEncoder]:
    from transformers import AutoConfig

    model_type = read_config_dict(source, **fetch).get("model_type")
    if model_type not in CTC_ENCODERS:
        raise ConfigurationError(
            f"{source} holds a model of type '{model_type}'; a CTC model of one of these types "
            f"was expected: {', '.join(CTC_ENCODERS)}."
        )
    encoder = CTC_ENCODERS[model_type]
    if wanted is not None and ctc_encoder(wanted) is not encoder:
        raise ConfigurationError(
            f"{source} holds a model of type '{model_type}', but '{ctc_encoder(wanted).model_type}'"
            f" was asked for."
        )
    return AutoConfig.from_pretrained(source, trust_remote_code=False, **fetch), encoder


def override_settings(source: str, config: Any, settings: Mapping[str, Any]) -> None:
    """Replace settings of a config, or of the encoder's inside it.

    Raises:
        ConfigurationError: the config has no setting of that name.
    """
    inner = getattr(config, "encoder_config", None)
    for name, value in settings.items():
        holder = config if hasattr(config, name) else inner
        if not hasattr(holder, name):
            known = sorted({*vars(config), *(vars(inner) if inner is not None else ())})
            raise ConfigurationError(
                f"The config of {source} has no setting '{name}'.{did_you_mean(name, known)}"
            )
        setattr(holder, name, value)


def refuse_pickles(directory: Path) -> None:
    """Raise ``CheckpointError`` unless a directory holds safetensors."""
    if any(directory.glob("*.safetensors")):
        return
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt") for path in directory.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{directory} holds its weights in {', '.join(pickles)}. Such files are pickles, which "
            "can run code when read, and are refused. Save the model again from a transformers "
            "installation that you trust with it: save_pretrained writes model.safetensors."
        )
    raise CheckpointError(f"{directory} holds no weights: no *.safetensors file.")


def _require_head(source: str, config: Any, encoder: CTCEncoder, vocab_size: int | None) -> None:
    architectures = getattr(config, "architectures", None) or []
    if encoder.architecture in architectures or vocab_size is not None:
        return
    shown = ", ".join(architectures) or "no architecture"
    raise ConfigurationError(
        f"{source} has no CTC head (its config names {shown}). Give vocab_size, the number of "
        "tokens, to start one."
    )


def _require_own(source: str, encoder: CTCEncoder, drawn: set[str], *, new_head: bool) -> None:
    """Let only the mask vector and a new head be drawn."""
    allowed = [f"{encoder.base_name}.masked_spec_embed"]
    if new_head:
        allowed.append(f"{encoder.head_name}.")
    strangers = [name for name in drawn if not name.startswith(tuple(allowed))]
    require_nothing_drawn(source, encoder.architecture, strangers)


def _draw_head(head: Any, encoder: CTCEncoder, config: Any) -> set[str]:
    """Draw a head as transformers does, also over one of the same size."""
    from torch import nn

    nn.init.normal_(head.weight, std=getattr(config, "initializer_range", 0.02))
    nn.init.zeros_(head.bias)
    return {f"{encoder.head_name}.{name}" for name, _ in head.named_parameters()}


def _processor(source: str, encoder: CTCEncoder, fetch: dict[str, Any]) -> Any:
    extractor, tokenizer = _feature_extractor(source, encoder, fetch), _tokenizer(source, fetch)
    if tokenizer is None:
        return extractor
    return build_processor(encoder.model_type, extractor, tokenizer)


def _feature_extractor(source: str, encoder: CTCEncoder, fetch: dict[str, Any]) -> Any:
    import transformers

    extractor_class = getattr(transformers, encoder.feature_extractor_class)
    try:
        return extractor_class.from_pretrained(source, **fetch)
    except OSError as error:
        raise CheckpointError(f"{source} has no feature extractor: {error}") from error


def _tokenizer(source: str, fetch: dict[str, Any]) -> Any:
    """Return the checkpoint's tokenizer, or ``None`` where it has none."""
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file

    names = ("tokenizer_config.json", "vocab.json", "tokenizer.json")
    found = (
        cached_file(source, name, _raise_exceptions_for_missing_entries=False, **fetch)
        for name in names
    )
    if not any(found):
        return None
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False, **fetch)

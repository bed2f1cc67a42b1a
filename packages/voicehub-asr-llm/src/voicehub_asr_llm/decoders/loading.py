"""Reading a causal language model of transformers."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn

from voicehub.errors import CheckpointError, CheckpointMismatchError, ConfigurationError
from voicehub_asr_llm.config import DecoderConfig
from voicehub_asr_llm.decoders.chat import read_template
from voicehub_hf.identity import checkpoint_identity
from voicehub_hf.loading import checkpoint_source, refuse_pickles
from voicehub_hf.processors import progress_bars

logger = logging.getLogger(__name__)

#: Kinds of layers that see other positions by attention alone, which a mask can end.
_ATTENDING = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_ROWS = 8192


class DecoderSource:
    """A decoder that is described, not loaded.

    Args:
        config: section of a run.

    Attributes:
        text_config: transformers' configuration of the language model.
        tokenizer: of the checkpoint.

    Raises:
        CheckpointError: there is no such checkpoint, or none with a tokenizer.
        ConfigurationError: it is no causal language model.
    """

    def __init__(self, config: DecoderConfig) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.config = config
        self.path, local = checkpoint_source(config.path, config.local_files_only or None)
        self.fetch: dict[str, Any] = {"revision": config.revision, "local_files_only": local}
        try:
            self.whole_config = AutoConfig.from_pretrained(
                self.path, trust_remote_code=False, **self.fetch
            )
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                self.path, trust_remote_code=False, **self.fetch
            )
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"model.decoder.path: configuration and tokenizer of {self.path} cannot be read: "
                f"{error}"
            ) from error
        if config.chat_template is not None:
            self.tokenizer.chat_template = read_template(config.chat_template)
        self.model_class = _model_class(self.path, self.whole_config)
        self.text_config = self.whole_config.get_text_config()

    @property
    def hidden_size(self) -> int:
        """Width of its inputs."""
        return int(self.text_config.hidden_size)

    @property
    def recurrent_kinds(self) -> tuple[str, ...]:
        """Kinds of layers whose state runs on from one utterance into the next in a row."""
        kinds = set(getattr(self.text_config, "layer_types", None) or ()) - _ATTENDING
        if not kinds and getattr(self.model_class, "_is_stateful", False):
            kinds = {"recurrent"}
        return tuple(sorted(kinds))

    def identity(self) -> dict[str, Any]:
        """Which checkpoint it is, exactly: JSON."""
        return checkpoint_identity(self.path, self.whole_config)

    def load(self) -> Any:
        """Load it, in evaluation mode, on the CPU.

        Raises:
            CheckpointError: the weights cannot be read.
            CheckpointMismatchError: some are missing.
        """
        if Path(self.path).is_dir():
            refuse_pickles(Path(self.path))
        return load_causal_lm(
            self.path,
            dtype=getattr(torch, self.config.dtype),
            attn_implementation=installed_attention(self.config.attention),
            **self.fetch,
        )


def load_causal_lm(source: str | Path, **options: Any) -> Any:
    """Load a causal language model from safetensors alone, all of its weights.

    Raises:
        CheckpointError: it cannot be read.
        CheckpointMismatchError: weights are missing.
    """
    from transformers import AutoModelForCausalLM

    local = bool(options.get("local_files_only")) or Path(source).is_dir()
    try:
        with torch.random.fork_rng(devices=()), progress_bars(shown=not local):
            model, info = AutoModelForCausalLM.from_pretrained(
                str(source),
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the decoder {source} cannot be loaded: {error}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise CheckpointMismatchError(
            f"the decoder {source} lacks {len(missing)} weights: {', '.join(missing[:5])}."
        )
    return model.eval()


def installed_attention(wanted: str) -> str | None:
    """Name for transformers, None for its own choice; without flash-attn, which is said."""
    if wanted == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        logger.warning(
            "decoder.attention=flash_attention_2 needs the package flash-attn, which is not "
            "installed: what transformers chooses is used instead, with a mask."
        )
        return None
    return None if wanted == "auto" else wanted


def plain(model: nn.Module) -> Any:
    """The transformers model inside low-rank adapters; any other model as it is."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def base_of(model: nn.Module) -> Any:
    """The language model below its output layer."""
    return plain(model).base_model


def embedding_rms(model: nn.Module) -> float:
    """Root mean square of the inputs that the decoder's tokens are, scaled where it scales them."""
    embed = plain(model).get_input_embeddings()
    ids = torch.arange(embed.weight.shape[0], device=embed.weight.device)
    total = 0.0
    with torch.no_grad():
        for part in ids.split(_ROWS):
            total += float(embed(part).double().square().sum())
    return (total / embed.weight.numel()) ** 0.5  # type: ignore[no-any-return]


def _model_class(path: str, config: Any) -> Any:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = type(config)
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigurationError(
            f"model.decoder.path: {path} holds a model of type '{config.model_type}', which is no "
            "causal language model of transformers."
        )
    found = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    if not found.__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise ConfigurationError(
            f"model.decoder.path: {path} holds a {found.__name__}, which has more parts than a "
            "language model. Take a checkpoint of the language model alone."
        )
    return found

"""Text features of encoders of transformers: CLIP's, or any other one's last hidden states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_data.config.base import DataModel
from voicehub_flow.features.base import TextExtractor
from voicehub_flow.features.pretrained import digest_of_model, load_frozen, require_directory

_AT_ONCE = 32


class TextEncoderSettings(DataModel):
    """Options.

    Attributes:
        tokens: of every text; longer ones are cut, shorter ones filled up.
    """

    tokens: int = Field(default=77, ge=1)


class EncoderText(TextExtractor):
    """Last hidden states of an encoder; zero where a text has no token.

    Args:
        model: in evaluation mode.
        tokenizer: its own.
        settings: options.
        source: directory of both.
    """

    name = "text-encoder"
    #: Whether states of filled-up places are kept: CLIP was published that way.
    keeps_padding: ClassVar[bool] = False

    def __init__(
        self, model: Any, tokenizer: Any, settings: TextEncoderSettings, source: str
    ) -> None:
        self.model, self.tokenizer, self.config, self.source = model, tokenizer, settings, source
        self.tokens = settings.tokens
        self.channels = int(model.config.hidden_size)
        self.options = settings.model_dump()
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if tokenizer.pad_token is None:
            raise ConfigurationError(f"{source}: its tokenizer has no token to fill up with.")

    def encode(self, texts: Sequence[str]) -> Tensor:
        parts = [
            self._encode(list(texts[start : start + _AT_ONCE]))
            for start in range(0, len(texts), _AT_ONCE)
        ]
        return torch.cat(parts) if parts else torch.zeros(0, self.tokens, self.channels)

    def _encode(self, texts: list[str]) -> Tensor:
        made = self.tokenizer(
            texts,
            padding="max_length",
            truncation=True,
            max_length=self.tokens,
            return_tensors="pt",
        )
        ids, mask = (made[k].to(self.model.device) for k in ("input_ids", "attention_mask"))
        with torch.no_grad():
            states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if not self.keeps_padding:
            states = states.masked_fill(mask[..., None] == 0, 0.0)
        found: Tensor = states.float().cpu()
        return found

    def settings(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "channels": self.channels}

    def weights_digest(self) -> str:
        return digest_of_model(self.source, self.model.config)


class ClipText(EncoderText):
    """The text half of CLIP (Radford et al. 2021): 77 tokens, as published stores have them."""

    name = "clip-text"
    keeps_padding = True


def build(directory: Path | None, settings: Mapping[str, Any]) -> EncoderText:
    """For the registry: any encoder; of an encoder-decoder, its encoder."""
    import transformers

    found = require_directory(EncoderText.name, directory)
    model = load_frozen(transformers.AutoModel, found)
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    return EncoderText(encoder, _tokenizer(found), TextEncoderSettings.load(settings), str(found))


def build_clip(directory: Path | None, settings: Mapping[str, Any]) -> ClipText:
    """For the registry: CLIP's text model."""
    import transformers

    found = require_directory(ClipText.name, directory)
    model = load_frozen(transformers.CLIPTextModel, found)
    return ClipText(model, _tokenizer(found), TextEncoderSettings.load(settings), str(found))


def _tokenizer(directory: Path) -> Any:
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{directory}: its tokenizer cannot be read ({error}).") from error

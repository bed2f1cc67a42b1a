"""A decoder with one head a codebook under the delay pattern (MusicGen, Parler style)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub_codec_lm.config import DelayModelConfig
from voicehub_codec_lm.data.collate import DelayCollator
from voicehub_codec_lm.layouts import delayed_length, undelay
from voicehub_codec_lm.networks import base
from voicehub_codec_lm.networks.base import Asked, Heads, Network
from voicehub_codec_lm.sampling.draw import draw, guided
from voicehub_codec_lm.sampling.settings import SamplingSettings

DECODER_FOLDER, TEXT_FOLDER, PROJECTION_FILE = "decoder", "text_encoder", "projection.safetensors"


class TextConditionedDecoder(nn.Module):
    """A text encoder, and a decoder of codes that attends to it.

    Args:
        text_encoder: ``T5EncoderModel``.
        decoder: ``MusicgenForCausalLM``.
        projection: from the encoder's width to the decoder's; None where they are equal.
    """

    def __init__(self, text_encoder: Any, decoder: Any, projection: nn.Linear | None) -> None:
        super().__init__()
        self.text_encoder, self.decoder = text_encoder, decoder
        self.projection = nn.Identity() if projection is None else projection

    def condition(self, prompt_ids: Tensor, prompt_mask: Tensor, keep: Tensor) -> Tensor:
        """What the decoder attends to: (batch, tokens, size).

        Args:
            prompt_ids, prompt_mask: int64 (batch, tokens).
            keep: (batch,), 0 where the text is not to be seen: all states are then 0, which is
                MusicGen's empty condition.
        """
        ids = prompt_ids.masked_fill(prompt_mask == 0, 0)
        states = self.text_encoder(input_ids=ids, attention_mask=prompt_mask).last_hidden_state
        projected: Tensor = self.projection(states) * keep[:, None, None]
        return projected


class DelayNetwork(Network):
    """``MusicgenForCausalLM`` conditioned by ``T5EncoderModel``.

    Codes run from 0 to ``codebook_size`` - 1; the next is the end, which heads can say, and the
    one after stands for silence before and after, which embeddings alone know.
    """

    has_guidance: ClassVar[bool] = True
    config: DelayModelConfig

    @property
    def end(self) -> int:
        """Code that ends a codebook."""
        return self.sizes.codebook_size

    @property
    def start(self) -> int:
        """Code before the first, and where a codebook is silent."""
        return self.sizes.codebook_size + 1

    # -- the module ----------------------------------------------------------------------------

    def build(self, seed: int) -> nn.Module:
        with base.seeded(seed):
            if self.config.path is None:
                return self._random()
            return self._from_checkpoint(self.config.path)

    def _random(self) -> TextConditionedDecoder:
        from transformers import MusicgenDecoderConfig, MusicgenForCausalLM

        sizes = self.config.architecture
        assert sizes is not None
        decoder = MusicgenForCausalLM(
            MusicgenDecoderConfig(
                hidden_size=sizes.hidden_size,
                num_hidden_layers=sizes.num_hidden_layers,
                num_attention_heads=sizes.num_attention_heads,
                ffn_dim=sizes.ffn_dim,
                max_position_embeddings=sizes.max_position_embeddings,
                dropout=self.config.dropout,
                attention_dropout=0.0,
                activation_dropout=0.0,
                layerdrop=0.0,
                **self._code_sizes(),
            )
        )
        return TextConditionedDecoder(
            self._new_text_encoder(sizes.text_layers, decoder), decoder, None
        )

    def _code_sizes(self) -> dict[str, Any]:
        return {
            "vocab_size": self.sizes.codebook_size + 1,
            "num_codebooks": self.sizes.codebooks,
            "pad_token_id": self.start,
            "bos_token_id": self.start,
            "audio_channels": 1,
        }

    def _new_text_encoder(self, layers: int, decoder: Any) -> Any:
        from transformers import T5Config, T5EncoderModel

        width, heads = decoder.config.hidden_size, decoder.config.num_attention_heads
        return T5EncoderModel(
            T5Config(
                vocab_size=self.sizes.prompt_tokens,
                d_model=width,
                d_kv=width // heads,
                num_heads=heads,
                d_ff=2 * width,
                num_layers=layers,
                dropout_rate=self.config.dropout,
                feed_forward_proj="gated-gelu",
                pad_token_id=0,
            )
        )

    def _from_checkpoint(self, path: str) -> TextConditionedDecoder:
        """A whole MusicGen without its codec, or a decoder alone with a new text encoder."""
        from transformers import (
            AutoConfig,
            MusicgenForCausalLM,
            MusicgenForConditionalGeneration,
        )

        fetch = {"revision": self.config.revision, "local_files_only": self.config.local_files_only}
        kind = AutoConfig.from_pretrained(path, **fetch).model_type
        if kind == "musicgen":
            whole = base.from_pretrained(MusicgenForConditionalGeneration, path, **fetch)
            projection = getattr(whole, "enc_to_dec_proj", None)
            return TextConditionedDecoder(
                whole.text_encoder, self._widened(whole.decoder), projection
            )
        if kind == "musicgen_decoder":
            decoder = self._widened(base.from_pretrained(MusicgenForCausalLM, path, **fetch))
            return TextConditionedDecoder(self._new_text_encoder(2, decoder), decoder, None)
        raise ConfigurationError(
            f"{path} is a {kind!r}; the delay layout needs a MusicgenForConditionalGeneration or a "
            "MusicgenForCausalLM."
        )

    def _widened(self, decoder: Any) -> Any:
        """The decoder with a row for the end code in every head and embedding."""
        config, books = decoder.config, self.sizes.codebooks
        if config.num_codebooks != books:
            raise ConfigurationError(
                f"{self.config.path} has {config.num_codebooks} codebooks, and the codec {books}: "
                "set codec.num_codebooks, or use the codec the model was trained with."
            )
        config.layerdrop = 0.0
        if config.vocab_size == self.sizes.codebook_size + 1:
            return decoder
        if config.vocab_size != self.sizes.codebook_size:
            raise ConfigurationError(
                f"{self.config.path} speaks {config.vocab_size} codes, and the codec has "
                f"{self.sizes.codebook_size}: use the codec the model was trained with."
            )
        from transformers import MusicgenForCausalLM

        made = type(config).from_dict({**config.to_dict(), **self._code_sizes()})
        wider = MusicgenForCausalLM(made)
        state, own = decoder.state_dict(), wider.state_dict()
        for name, value in state.items():
            if own[name].shape == value.shape:
                own[name] = value
            else:  # one more row: what stood for silence moves one up in embeddings
                own[name][: self.end] = value[: self.end]
                if len(value) > self.end:
                    own[name][self.start] = value[self.end]
        wider.load_state_dict(own)
        return wider

    def read(self, directory: Path) -> nn.Module:
        from safetensors.torch import load_file
        from transformers import MusicgenForCausalLM, T5EncoderModel

        decoder = base.from_pretrained(MusicgenForCausalLM, directory / DECODER_FOLDER)
        text = base.from_pretrained(T5EncoderModel, directory / TEXT_FOLDER)
        projection = None
        path = directory / PROJECTION_FILE
        if path.is_file():
            state = load_file(path)
            projection = nn.Linear(state["weight"].shape[1], state["weight"].shape[0])
            projection.load_state_dict(state)
        return TextConditionedDecoder(text, decoder, projection)

    def write(self, module: nn.Module, directory: Path) -> None:
        from safetensors.torch import save_file

        base.save(module.decoder, directory / DECODER_FOLDER)  # type: ignore[arg-type]
        base.save(module.text_encoder, directory / TEXT_FOLDER)  # type: ignore[arg-type]
        if isinstance(module.projection, nn.Linear):
            state = {k: v.detach().contiguous() for k, v in module.projection.state_dict().items()}
            save_file(state, directory / PROJECTION_FILE)

    # -- training ------------------------------------------------------------------------------

    def collator(self, pack_steps: int | None = None) -> DelayCollator:
        if pack_steps is not None:
            raise ConfigurationError("the delay layout cannot pack: positions are those of a row.")
        return DelayCollator(self.start, self.end, self.config.condition_dropout)

    def ask(self, module: nn.Module, batch: Mapping[str, Any]) -> Asked:
        labels: Tensor = batch["labels"]  # (batch, codebooks, steps)
        decoder = base.plain(module.decoder)  # type: ignore[arg-type]
        condition = module.condition(  # type: ignore[operator]
            batch["prompt_ids"], batch["prompt_mask"], batch["keep"]
        )
        # What is padded lies behind what counts, where a causal decoder cannot look.
        states = decoder.model(
            input_ids=batch["codes"].reshape(-1, labels.shape[2]),
            encoder_hidden_states=condition,
            encoder_attention_mask=batch["prompt_mask"],
            use_cache=False,
        ).last_hidden_state
        heads = Heads(
            tuple(f"codebook_{book}" for book in range(self.sizes.codebooks)),
            states.reshape(-1, states.shape[-1]),
            torch.stack([head.weight for head in decoder.lm_heads]),
            labels.transpose(1, 2).reshape(-1, labels.shape[1]),
            self.codebook_weights(labels.device),
        )
        return Asked((heads,), (states.shape[0], states.shape[1]))

    # -- synthesis -----------------------------------------------------------------------------

    def generate(
        self,
        module: nn.Module,
        prompt: Sequence[int],
        settings: SamplingSettings,
        generator: torch.Generator,
        max_frames: int,
    ) -> Tensor:
        decoder, books = base.plain(module.decoder), self.sizes.codebooks  # type: ignore[arg-type]
        device = next(decoder.parameters()).device
        twice = settings.guidance_scale != 1.0
        ids = torch.tensor([list(prompt)] * (2 if twice else 1), device=device)
        mask = torch.ones_like(ids)
        keep = torch.tensor([1.0, 0.0] if twice else [1.0], device=device)
        condition = module.condition(ids, mask, keep)  # type: ignore[operator]
        said = torch.full((books, 1), self.start, device=device)
        cache, frames = None, max_frames
        for step in range(delayed_length(max_frames + 1, books)):
            if step >= delayed_length(frames, books):
                break
            output = base.cached(
                decoder,
                cache,
                input_ids=said[:, -1:].repeat(len(ids), 1),
                encoder_hidden_states=condition,
                encoder_attention_mask=mask,
            )
            cache = base.cache_of(output)
            logits = output.logits[:, -1].reshape(len(ids), books, -1)
            scores = guided(logits[0], logits[1], settings.guidance_scale) if twice else logits[0]
            scores[1:, self.end] = -torch.inf  # the first codebook decides where speech ends
            if step == 0:
                scores[0, self.end] = -torch.inf
            recent = said[:, 1:][:, -settings.repetition_window :].clamp(max=self.end)
            drawn = draw(scores, settings, generator, recent)
            if step < frames and int(drawn[0]) == self.end:
                frames = step
            due = torch.arange(books, device=device)
            drawn[(step < due) | (step > due + frames)] = self.start
            drawn[step == due + frames] = self.end
            said = torch.cat([said, drawn[:, None]], 1)
        return undelay(said[:, 1 : 1 + delayed_length(frames, books)]).cpu()

    # -- low-rank adapters ---------------------------------------------------------------------

    def adapted(self, module: nn.Module) -> nn.Module:
        decoder: nn.Module = module.decoder  # type: ignore[assignment]
        return decoder

    def new_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        decoder = base.plain(module.decoder)  # type: ignore[arg-type]
        tables = decoder.model.decoder.embed_tokens
        return [part.weight for part in (*tables, *decoder.lm_heads)]

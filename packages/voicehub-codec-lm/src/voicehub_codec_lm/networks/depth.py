"""A backbone over frames and a depth decoder over the codebooks of one (CSM)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.errors import ConfigurationError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.config import DepthModelConfig
from voicehub_codec_lm.data.collate import DepthCollator
from voicehub_codec_lm.layouts import block_mask
from voicehub_codec_lm.networks import base
from voicehub_codec_lm.networks.base import Asked, Heads, Network
from voicehub_codec_lm.sampling.draw import draw
from voicehub_codec_lm.sampling.settings import SamplingSettings

MODEL_FOLDER = "transformers"
#: The class builds a codec that nothing here uses; this one costs nothing.
_SMALLEST_MIMI: dict[str, Any] = {
    "model_type": "mimi",
    "hidden_size": 8,
    "num_filters": 2,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 8,
    "codebook_size": 2,
    "codebook_dim": 8,
    "vector_quantization_hidden_dimension": 8,
    "num_quantizers": 2,
    "num_semantic_quantizers": 1,
    "upsampling_ratios": [2, 2],
    "upsample_groups": 8,
}


class DepthNetwork(Network):
    """``CsmForConditionalGeneration`` without the codec inside it."""

    config: DepthModelConfig

    @property
    def end(self) -> int:
        """Code that ends every codebook; a published checkpoint has its own."""
        if self._end is None:
            self._end = self._declared_end()
        return self._end

    _end: int | None = None

    def _declared_end(self) -> int:
        from transformers import AutoConfig

        if self.config.path is None:
            return self.sizes.codebook_size
        fetch = {"revision": self.config.revision, "local_files_only": self.config.local_files_only}
        return int(AutoConfig.from_pretrained(self.config.path, **fetch).codebook_eos_token_id)

    # -- the module ----------------------------------------------------------------------------

    def build(self, seed: int) -> nn.Module:
        from transformers import CsmForConditionalGeneration

        if self.sizes.codebooks < 2:
            raise ConfigurationError(
                "the depth layout needs a codec of at least two codebooks; with one, use the flat "
                "layout."
            )
        with base.seeded(seed):
            if self.config.path is None:
                model = CsmForConditionalGeneration(self._csm_config())
            else:
                model = base.from_pretrained(
                    CsmForConditionalGeneration,
                    self.config.path,
                    revision=self.config.revision,
                    local_files_only=self.config.local_files_only,
                )
                self._check(model.config)
        return self._without_codec(model)

    def _csm_config(self) -> Any:
        from transformers import CsmConfig

        sizes = self.config.architecture
        assert sizes is not None
        codes = self.sizes.codebook_size + 1
        depth = {
            "num_codebooks": self.sizes.codebooks,
            "backbone_hidden_size": sizes.hidden_size,
            "vocab_size": codes,
            "hidden_size": sizes.depth_hidden_size,
            "intermediate_size": sizes.depth_intermediate_size,
            "num_hidden_layers": sizes.depth_layers,
            "num_attention_heads": sizes.depth_attention_heads,
            "num_key_value_heads": sizes.depth_attention_heads,
            "head_dim": sizes.depth_hidden_size // sizes.depth_attention_heads,
            "max_position_embeddings": self.sizes.codebooks + 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "attention_dropout": self.config.dropout,
        }
        return CsmConfig(
            num_codebooks=self.sizes.codebooks,
            vocab_size=codes,
            text_vocab_size=self.sizes.prompt_tokens,
            hidden_size=sizes.hidden_size,
            intermediate_size=sizes.intermediate_size,
            num_hidden_layers=sizes.num_hidden_layers,
            num_attention_heads=sizes.num_attention_heads,
            num_key_value_heads=sizes.num_attention_heads,
            head_dim=sizes.hidden_size // sizes.num_attention_heads,
            max_position_embeddings=sizes.max_position_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            attention_dropout=self.config.dropout,
            codebook_pad_token_id=self.sizes.codebook_size,
            codebook_eos_token_id=self.sizes.codebook_size,
            depth_decoder_config=depth,
            codec_config=_SMALLEST_MIMI,
            tie_codebooks_embeddings=True,
        )

    def _check(self, config: Any) -> None:
        if config.num_codebooks != self.sizes.codebooks:
            raise ConfigurationError(
                f"{self.config.path} has {config.num_codebooks} codebooks, and the codec "
                f"{self.sizes.codebooks}: set codec.num_codebooks, or use the codec the model was "
                "trained with."
            )
        if config.vocab_size < self.sizes.codebook_size:
            raise ConfigurationError(
                f"{self.config.path} speaks {config.vocab_size} codes, and the codec has "
                f"{self.sizes.codebook_size}: use the codec the model was trained with."
            )

    def _without_codec(self, model: Any) -> nn.Module:
        del model.codec_model
        self._end = int(model.config.codebook_eos_token_id)
        return model  # type: ignore[no-any-return]

    def read(self, directory: Path) -> nn.Module:
        from transformers import CsmForConditionalGeneration

        # The class misses the weights of its codec, which are thrown away at once.
        reports = logging.getLogger("transformers.modeling_utils")
        level = reports.level
        reports.setLevel(logging.ERROR)
        try:
            model = base.from_pretrained(CsmForConditionalGeneration, directory / MODEL_FOLDER)
        finally:
            reports.setLevel(level)
        return self._without_codec(model)

    def write(self, module: nn.Module, directory: Path) -> None:
        base.save(module, directory / MODEL_FOLDER)

    # -- training ------------------------------------------------------------------------------

    def collator(self, pack_steps: int | None = None) -> DepthCollator:
        return DepthCollator(self.end, self.config.depth_share, pack_steps)

    def ask(self, module: nn.Module, batch: Mapping[str, Any]) -> Asked:
        model, labels = base.plain(module), batch["labels"]
        embedded = self._embedded(model, batch)
        states = model.backbone_model(
            inputs_embeds=embedded,
            attention_mask=base.additive(block_mask(batch["segments"]), embedded.dtype),
            position_ids=batch["positions"],
            use_cache=False,
        ).last_hidden_state
        rows = states.reshape(-1, states.shape[-1])
        weights = self.codebook_weights(labels.device)
        first = Heads(
            ("codebook_0",), rows, model.lm_head.weight[None], labels.reshape(-1, 1), weights[:1]
        )
        depth = self._depth(model, rows[batch["depth_rows"]], batch, weights)
        return Asked((first, depth), (states.shape[0], states.shape[1]))

    def _embedded(self, model: Any, batch: Mapping[str, Any]) -> Tensor:
        text = model.embed_text_tokens(batch["text_ids"])
        audio = model.backbone_model.embed_tokens(batch["codes"])
        return torch.where(batch["is_audio"][..., None], audio, text)

    def _depth(
        self, model: Any, states: Tensor, batch: Mapping[str, Any], weights: Tensor
    ) -> Heads:
        """Codebooks after the first of the chosen frames; each head has rows of its own."""
        codes: Tensor = batch["depth_codes"]  # (n, codebooks)
        books = codes.shape[1] - 1
        # The first position is taken by the backbone's state.
        read = torch.nn.functional.pad(codes[:, :-1], (1, 0))
        hidden = model.depth_decoder.model(
            input_ids=read, backbone_last_hidden_state=states, use_cache=False
        ).last_hidden_state[:, 1:]
        own = torch.eye(books, dtype=torch.bool, device=codes.device)
        labels = codes[:, 1:, None].expand(-1, -1, books).masked_fill(~own, IGNORED)
        counts = batch["depth_weights"][:, None].expand(-1, books).reshape(-1, 1)
        return Heads(
            tuple(f"codebook_{book}" for book in range(1, books + 1)),
            hidden.reshape(-1, hidden.shape[-1]),
            model.depth_decoder.codebooks_head.weight.transpose(1, 2),
            labels.reshape(-1, books),
            weights[1:],
            counts.expand(-1, books),
        )

    # -- synthesis -----------------------------------------------------------------------------

    def generate(
        self,
        module: nn.Module,
        prompt: Sequence[int],
        settings: SamplingSettings,
        generator: torch.Generator,
        max_frames: int,
    ) -> Tensor:
        model, books = base.plain(module), self.sizes.codebooks
        device = next(model.parameters()).device
        embedded = model.embed_text_tokens(torch.tensor([list(prompt)], device=device))
        said = torch.zeros(books, 0, dtype=torch.long, device=device)
        cache = None
        for step in range(max_frames):
            output = base.cached(model.backbone_model, cache, inputs_embeds=embedded)
            cache = base.cache_of(output)
            state = output.last_hidden_state[:, -1]
            frame = self._frame(model, state, said, settings, generator, first=step == 0)
            if frame is None:
                break
            said = torch.cat([said, frame[:, None]], 1)
            embedded = model.backbone_model.embed_tokens(frame[None, None])
        return said.cpu()

    def _frame(
        self,
        model: Any,
        state: Tensor,
        said: Tensor,
        settings: SamplingSettings,
        generator: torch.Generator,
        *,
        first: bool,
    ) -> Tensor | None:
        """The codes of the next frame, None at the end.

        Where the end is no code of the codec the first codebook says it; a published checkpoint
        ends with a frame of ends, since its end is also a code.
        """
        shared = self.end < self.sizes.codebook_size
        recent = said[:, -settings.repetition_window :]
        scores = self._possible(model.lm_head(state), end=not first or shared)
        codes = [draw(scores, settings, generator, recent[:1])]
        if not shared and int(codes[0]) == self.end:
            return None
        cache = None
        ids = torch.stack([torch.zeros_like(codes[0]), codes[0]], 1)
        hidden: dict[str, Any] = {"backbone_last_hidden_state": state}
        for book in range(1, self.sizes.codebooks):
            output = base.cached(model.depth_decoder.model, cache, input_ids=ids, **hidden)
            cache, hidden = base.cache_of(output), {}
            weight = model.depth_decoder.codebooks_head.weight[book - 1]
            scores = self._possible(output.last_hidden_state[:, -1] @ weight, end=shared)
            codes.append(draw(scores, settings, generator, recent[book : book + 1]))
            ids = codes[-1][:, None]
        frame = torch.cat(codes)
        ended = shared and not first and bool((frame == self.end).all())
        return None if ended else frame

    def _possible(self, logits: Tensor, *, end: bool) -> Tensor:
        """Only codes of the codec, and the end where it may be said."""
        kept = torch.full_like(logits, -torch.inf)
        kept[:, : self.sizes.codebook_size] = logits[:, : self.sizes.codebook_size]
        if end:
            kept[:, self.end] = logits[:, self.end]
        return kept

    # -- low-rank adapters ---------------------------------------------------------------------

    def adapted(self, module: nn.Module) -> nn.Module:
        return module

    def new_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        model = base.plain(module)
        return [
            model.embed_text_tokens.weight,
            model.backbone_model.embed_tokens.embed_audio_tokens.weight,
            model.lm_head.weight,
            model.depth_decoder.codebooks_head.weight,
        ]

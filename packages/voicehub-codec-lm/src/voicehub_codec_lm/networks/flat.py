"""A causal language model over a vocabulary that goes on with audio (Orpheus, Llasa style)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_codec_lm.config import FlatModelConfig
from voicehub_codec_lm.data.collate import FlatCollator
from voicehub_codec_lm.layouts import FlatVocabulary, block_mask
from voicehub_codec_lm.networks import base
from voicehub_codec_lm.networks.base import Asked, Heads, Network
from voicehub_codec_lm.sampling.draw import draw
from voicehub_codec_lm.sampling.settings import SamplingSettings

MODEL_FOLDER = "transformers"


class FlatNetwork(Network):
    """Any causal language model of transformers with one output layer; Llama from scratch."""

    config: FlatModelConfig

    @property
    def vocabulary(self) -> FlatVocabulary:
        """Token ids; audio follows the prompt's vocabulary."""
        sizes = self.sizes
        return FlatVocabulary(sizes.prompt_tokens, sizes.codebooks, sizes.codebook_size)

    def build(self, seed: int) -> nn.Module:
        from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

        size = self.vocabulary.size
        with base.seeded(seed):
            if self.config.path is None:
                assert self.config.architecture is not None
                made = LlamaConfig(
                    **self.config.architecture.model_dump(),
                    vocab_size=size,
                    attention_dropout=self.config.dropout,
                    bos_token_id=None,
                    eos_token_id=self.vocabulary.end,
                    pad_token_id=None,
                )
                return LlamaForCausalLM(made)
            fetch = {
                "revision": self.config.revision,
                "local_files_only": self.config.local_files_only,
            }
            model = base.from_pretrained(AutoModelForCausalLM, self.config.path, **fetch)
            model.resize_token_embeddings(size, mean_resizing=False)
            model.config.eos_token_id = self.vocabulary.end
            return model  # type: ignore[no-any-return]

    def read(self, directory: Path) -> nn.Module:
        from transformers import AutoModelForCausalLM

        model: nn.Module = base.from_pretrained(AutoModelForCausalLM, directory / MODEL_FOLDER)
        return model

    def write(self, module: nn.Module, directory: Path) -> None:
        base.save(module, directory / MODEL_FOLDER)

    # -- training ------------------------------------------------------------------------------

    def collator(self, pack_steps: int | None = None) -> FlatCollator:
        asks_text = self.config.loss.text_weight > 0
        return FlatCollator(self.vocabulary, text_labels=asks_text, pack_steps=pack_steps)

    def ask(self, module: nn.Module, batch: Mapping[str, Any]) -> Asked:
        model = base.plain(module)
        labels: Tensor = batch["labels"]
        head = model.get_output_embeddings().weight
        states = model.base_model(
            input_ids=batch["input_ids"],
            attention_mask=base.additive(block_mask(batch["segments"]), head.dtype),
            position_ids=batch["positions"],
            use_cache=False,
        ).last_hidden_state
        books = self.vocabulary.codebook_of(labels)
        weights = torch.cat([self.codebook_weights(labels.device), torch.ones(1)])
        rows = states.reshape(-1, states.shape[-1])
        audio = labels.masked_fill(books < 0, IGNORED)
        groups = [
            Heads(
                ("audio",),
                rows,
                head[None],
                audio.reshape(-1, 1),
                torch.ones(1, device=labels.device),
                weights.to(labels.device)[books.clamp(min=0)].reshape(-1, 1),
            )
        ]
        if self.config.loss.text_weight:
            text = labels.masked_fill(books >= 0, IGNORED)
            weight = torch.tensor([self.config.loss.text_weight], device=labels.device)
            groups.append(Heads(("text",), rows, head[None], text.reshape(-1, 1), weight))
        return Asked(tuple(groups), (states.shape[0], states.shape[1]))

    # -- synthesis -----------------------------------------------------------------------------

    def generate(
        self,
        module: nn.Module,
        prompt: Sequence[int],
        settings: SamplingSettings,
        generator: torch.Generator,
        max_frames: int,
    ) -> Tensor:
        model, words = base.plain(module), self.vocabulary
        device = next(model.parameters()).device
        ids = torch.tensor([[*prompt, words.start]], device=device)
        cache, said = None, torch.zeros(1, 0, dtype=torch.long, device=device)
        for position in range(max_frames * words.codebooks):
            output = base.cached(model, cache, input_ids=ids)
            cache = base.cache_of(output)
            logits = self._possible(output.logits[:, -1], position)
            recent = said[:, -settings.repetition_window :]
            ids = draw(logits, settings, generator, recent)[:, None]
            if int(ids) == words.end:
                break
            said = torch.cat([said, ids], 1)
        return words.codes(said[0]).cpu()

    def _possible(self, logits: Tensor, position: int) -> Tensor:
        """Only codes of the codebook that is due, and the end where a frame is whole."""
        low, high = self.vocabulary.allowed(position)
        kept = torch.full_like(logits, -torch.inf)
        kept[:, low:high] = logits[:, low:high]
        if position and position % self.sizes.codebooks == 0:
            kept[:, self.vocabulary.end] = logits[:, self.vocabulary.end]
        return kept

    # -- low-rank adapters ---------------------------------------------------------------------

    def adapted(self, module: nn.Module) -> nn.Module:
        return module

    def new_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        model = base.plain(module)
        return [model.get_input_embeddings().weight, model.get_output_embeddings().weight]

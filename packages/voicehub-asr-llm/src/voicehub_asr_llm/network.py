"""Encoder, projector and decoder as one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voicehub.errors import DataError
from voicehub_asr_llm.decoders.head import (
    TokenLoss,
    asked_steps,
    fused,
    materialised,
    reads_plainly,
)
from voicehub_asr_llm.decoders.loading import base_of, plain
from voicehub_asr_llm.encoders.base import Encoder
from voicehub_asr_llm.projectors.base import Projected, Projector, projected_lengths


class AsrLlmNetwork(nn.Module):
    """The whole model.

    Args:
        encoder, projector, decoder: the parts; the decoder perhaps inside peft.
        fused_loss: do not materialise logits, where the decoder's output layer allows it.

    Attributes:
        reads_plainly: whether it does.
    """

    def __init__(
        self, encoder: Encoder, projector: Projector, decoder: nn.Module, *, fused_loss: bool = True
    ) -> None:
        super().__init__()
        self.encoder, self.projector, self.decoder = encoder, projector, decoder
        self.reads_plainly = reads_plainly(decoder)
        self.fused_loss = fused_loss

    # -- audio -----------------------------------------------------------------------------------

    def hear(self, batch: Mapping[str, Any], ids: Sequence[str] | None = None) -> Projected:
        """Return what the projector makes of a batch's audio.

        Raises:
            DataError: the encoder gives other frames than the collator has left room for; the
                sample is named.
        """
        rows: Sequence[int] = batch["row_counts"]
        self._require_room(batch, ids)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._encoder_trains):
            states = self.encoder(batch["audio"], batch["audio_lengths"], rows)
        expected = max(batch["frame_counts"])
        if states.shape[1] != expected:
            longest = list(batch["frame_counts"]).index(expected)
            raise DataError(
                f"the encoder gave {states.shape[1]} frames for {rows[longest]} rows of "
                f"{_name(ids, longest)}; its length formula says {expected}. This is a bug, or a "
                "model whose configuration was changed by hand."
            )
        if "frame_keep" in batch:
            states = states * batch["frame_keep"][..., None].to(states.dtype)
        projected: Projected = self.projector(states, batch["audio_frames"])
        return projected

    @property
    def _encoder_trains(self) -> bool:
        return any(p.requires_grad for p in self.encoder.parameters())

    def _require_room(self, batch: Mapping[str, Any], ids: Sequence[str] | None) -> None:
        """Placeholders and projected frames must agree, sample by sample."""
        for place, (rows, room) in enumerate(
            zip(batch["row_counts"], batch["placeholders"], strict=True)
        ):
            frames = self.encoder.output_frames(rows)
            outputs = projected_lengths(frames, self.projector.stride)
            if outputs != room:
                raise DataError(
                    f"{_name(ids, place)}: the projector makes {outputs} inputs of its {frames} "
                    f"frames, but its conversation has room for {room}."
                )

    def inputs(self, batch: Mapping[str, Any], projected: Projected) -> Tensor:
        """Embed the conversations, projected frames in their places: (rows, steps, width)."""
        ids = batch["input_ids"]
        embedded: Tensor = plain(self.decoder).get_input_embeddings()(ids.clamp(min=0))
        width = embedded.shape[-1]
        chosen = projected.outputs.reshape(-1, width).index_select(0, batch["audio_sources"])
        flat = embedded.reshape(-1, width)
        mixed = flat.index_copy(0, batch["audio_positions"], chosen.to(flat.dtype))
        return mixed.view(embedded.shape)

    # -- training --------------------------------------------------------------------------------

    def ask(
        self,
        batch: Mapping[str, Any],
        ids: Sequence[str] | None = None,
        *,
        wants_best: bool = False,
    ) -> tuple[TokenLoss, Projected]:
        """Return the loss over all labels of a batch, and what the projector made of its audio.

        Rows hold utterances apart by their positions alone: where a position does not follow the
        one before, transformers lets nothing look back.
        """
        projected = self.hear(batch, ids)
        labels: Tensor = batch["labels"]
        inputs: dict[str, Any] = {
            "inputs_embeds": self.inputs(batch, projected),
            "position_ids": batch["positions"],
            "attention_mask": None,
            "use_cache": False,
        }
        if self.fused_loss and self.reads_plainly:
            hidden = base_of(self.decoder)(**inputs).last_hidden_state
            return fused(self.decoder, hidden, labels, wants_best=wants_best), projected
        steps = asked_steps(labels)
        logits = plain(self.decoder)(**inputs, logits_to_keep=steps).logits
        return materialised(logits, labels[:, steps], wants_best=wants_best), projected

    # -- the parts by name -------------------------------------------------------------------------

    def top_of_encoder(self, layers: int | None) -> list[nn.Module]:
        """The encoder's last layers with what stands behind them; None: all of it."""
        if layers is None:
            return [self.encoder]
        stack = self.encoder.layers()
        return [*stack[len(stack) - layers :], *self.encoder.tail()]


def _name(ids: Sequence[str] | None, place: int) -> str:
    return f"sample {place} of the batch" if ids is None else f"sample {ids[place]!r}"

"""The networks: inputs to embeddings, with the prototypes of the loss beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voicehub_hf.lengths import output_lengths
from voicehub_hf.speech_encoders import SpeechEncoder
from voicehub_xvector.fuser import Fuser
from voicehub_xvector.heads import Head
from voicehub_xvector.masking import frame_mask


class LogMelNetwork(nn.Module):
    """A head on features.

    Args:
        head: features to embeddings.
        loss: owns the prototypes.
    """

    def __init__(self, head: Head, loss: nn.Module) -> None:
        super().__init__()
        self.head = head
        self.loss = loss
        self.runs_apart = head.padding_sensitive

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Embed.

        Args:
            features: (B, T, F), padded on the right.
            lengths: valid frames, int64 (B,).

        Returns:
            (B, D).
        """
        if not self.runs_apart:
            embedded: Tensor = self.head(features, lengths)
            return embedded
        return apart(lambda rows, size: self.head(features[rows, :size], lengths[rows]), lengths)


class EncoderNetwork(nn.Module):
    """A pretrained encoder, a fuser, a head.

    Args:
        encoder: of transformers, perhaps inside peft.
        entry: its table entry.
        fuser, head: what follows.
        loss: owns the prototypes.
        start: first hidden state that is fused.
        runs_apart: utterances of unequal length do not share a forward of the encoder.

    Attributes:
        without_encoder_grad: the encoder's forward keeps nothing for a backward.
    """

    def __init__(
        self,
        encoder: nn.Module,
        entry: SpeechEncoder,
        fuser: Fuser,
        head: Head,
        loss: nn.Module,
        *,
        start: int,
        runs_apart: bool,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.fuser = fuser
        self.head = head
        self.loss = loss
        self.entry = entry
        self.start = start
        self.runs_apart = runs_apart
        self.without_encoder_grad = False

    @property
    def encoder_config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    def forward(
        self,
        lengths: Tensor,
        input_values: Tensor | None = None,
        input_features: Tensor | None = None,
        time_mask: Tensor | None = None,
        feature_mask: Tensor | None = None,
    ) -> Tensor:
        """Embed.

        Args:
            lengths: valid rows, int64 (B,).
            input_values: (B, samples), for encoders of waveforms.
            input_features: (B, rows, values), for the others.
            time_mask, feature_mask: what SpecAugment hides of the fused features.

        Returns:
            (B, D).
        """
        inputs = input_values if input_features is None else input_features
        assert inputs is not None
        if self.runs_apart:
            fused, frames = self._fused_apart(inputs, lengths, time_mask, feature_mask)
        else:
            fused, frames = self.fused(inputs, lengths, time_mask, feature_mask)
        return self.embed_fused(fused, frames)

    def _fused_apart(
        self,
        inputs: Tensor,
        lengths: Tensor,
        time_mask: Tensor | None,
        feature_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Encode utterances of unequal length apart, then pad what comes out."""
        pieces, order = [], []
        for length, rows in equal_lengths(lengths).items():
            chosen = torch.tensor(rows, device=lengths.device)
            masks = (_part(time_mask, chosen), _part(feature_mask, chosen))
            pieces.append(self.fused(inputs[chosen, :length], lengths[chosen], *masks)[0])
            order += rows
        longest = max(piece.shape[1] for piece in pieces)
        padded = [nn.functional.pad(p, (0, 0, 0, longest - p.shape[1])) for p in pieces]
        frames = output_lengths(self.encoder_config, lengths)
        return torch.cat(padded)[_inverse(order, lengths.device)], frames

    def embed_fused(self, fused: Tensor, frames: Tensor) -> Tensor:
        """Return the embeddings (B, D) of fused features (B, T, F) with valid frames (B,)."""
        if self.head.padding_sensitive:
            return apart(lambda rows, size: self.head(fused[rows, :size], frames[rows]), frames)
        embedded: Tensor = self.head(fused, frames)
        return embedded

    def fused(
        self,
        inputs: Tensor,
        lengths: Tensor,
        time_mask: Tensor | None = None,
        feature_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return fused features (B, T, F) of padded inputs, and their valid frames (B,)."""
        states, frames = self.hidden_states(inputs, lengths)
        if time_mask is not None:
            time_mask = time_mask[:, : states[0].shape[1]]
        return self.fuser(states, frames, time_mask, feature_mask), frames

    def hidden_states(self, inputs: Tensor, lengths: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Return the hidden states that are fused, (B, T, H) each, and valid frames (B,)."""
        frames = output_lengths(self.encoder_config, lengths)
        keywords: dict[str, Any] = {"output_hidden_states": True}
        if self.entry.input_kind == "bins":
            inputs = inputs.transpose(1, 2)
        else:
            keywords["attention_mask"] = frame_mask(lengths, inputs.shape[1]).long()
        keywords[self.entry.input_name] = inputs
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.without_encoder_grad):
            output = self.encoder(**keywords)
        # What leaves the encoder stands for its highest state: in some encoders and versions of
        # transformers, the list holds it before the last normalisation.
        states = (*output.hidden_states[:-1], output.last_hidden_state)[self.start :]
        if self.entry.input_kind == "bins" and not torch.compiler.is_exporting():
            # It always gives the frames of its longest input.
            longest = int(frames.max())
            states = tuple(state[:, :longest] for state in states)
        return states, frames


def apart(embed: Any, lengths: Tensor) -> Tensor:
    """Run ``embed(rows, longest)`` on utterances of equal length, one length after the other.

    Statistics over time and mirrored edges see no padding this way.

    Args:
        embed: given row numbers, int64 (n,), and their length; returns (n, D).
        lengths: of all rows, (B,).

    Returns:
        (B, D), in the order of the rows.
    """
    groups = equal_lengths(lengths)
    if len(groups) == 1:
        embedded: Tensor = embed(slice(None), next(iter(groups)))
        return embedded
    pieces = [
        embed(torch.tensor(rows, device=lengths.device), length) for length, rows in groups.items()
    ]
    order = [row for rows in groups.values() for row in rows]
    return torch.cat(pieces)[_inverse(order, lengths.device)]


def equal_lengths(lengths: Tensor) -> dict[int, list[int]]:
    """Rows of each length."""
    groups: dict[int, list[int]] = {}
    for row, length in enumerate(lengths.tolist()):
        groups.setdefault(length, []).append(row)
    return groups


def _inverse(order: list[int], device: torch.device) -> Tensor:
    """Where to find row 0, 1, … of what was put in this order."""
    return torch.tensor(sorted(range(len(order)), key=order.__getitem__), device=device)


def _part(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if mask is None else mask[rows]

"""The generator's training forward: text and spectrogram to a rendered segment of audio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from voicehub_vits.losses.monotonic_alignment import dense_path
from voicehub_vits.losses.recipe import recipe_losses
from voicehub_vits.network.alignment import gaussian_scores


@dataclass(frozen=True)
class Rendered:
    """What one forward of the generator gives; B utterances, D latent channels.

    Attributes:
        audio: the rendered segments, float (B, 1, segment_size); None where none was asked for.
        flowed: posterior latents through the flow, float (B, D, frames).
        posterior_logs: log-deviations of the posterior, float (B, D, frames).
        prior_means, prior_logs: of the prior, spread over frames, float (B, D, frames).
        frame_mask: float (B, 1, frames).
        text: text encoder output, float (B, C, tokens).
        text_mask: float (B, 1, tokens).
        durations: frames of each token by the alignment, float (B, 1, tokens).
        token_of_frame: token of each frame, int64 (B, frames), -1 in the padding.
        conditioning: speaker and language embeddings (B, size, 1), or None.
    """

    audio: Tensor | None
    flowed: Tensor
    posterior_logs: Tensor
    prior_means: Tensor
    prior_logs: Tensor
    frame_mask: Tensor
    text: Tensor
    text_mask: Tensor
    durations: Tensor
    token_of_frame: Tensor
    conditioning: Tensor | None


def render(model: Any, inputs: Mapping[str, Any], segment_frames: int | None) -> Rendered:
    """Run posterior encoder, flow, text encoder, alignment search and decoder.

    Args:
        model: ``VitsModel``, in float32 or float64.
        inputs: the collated batch, see :class:`~voicehub_vits.data.collate.VitsCollator`.
        segment_frames: frames that the decoder renders, from ``inputs["segment_starts"]`` on;
            None renders nothing.
    """
    conditioning = conditioning_of(model, inputs)
    text, means, logs, text_mask = encode_text(model, inputs["input_ids"], inputs["text_lengths"])
    spectrogram = inputs["spectrogram"]
    frame_mask = length_mask(inputs["frame_lengths"], spectrogram.shape[2]).to(spectrogram.dtype)
    latents, posterior_logs = posterior(
        model, spectrogram, frame_mask, inputs["posterior_noise"], conditioning
    )
    flowed = model.flow(latents, frame_mask, conditioning)
    token_of_frame = align(flowed, means, logs, inputs["text_lengths"], inputs["frame_lengths"])
    path = dense_path(token_of_frame, text.shape[2]).to(means.dtype)
    audio = None
    if segment_frames is not None:
        segments = cut(latents, inputs["segment_starts"], segment_frames)
        audio = model.decoder(segments, conditioning)
    return Rendered(
        audio=audio,
        flowed=flowed,
        posterior_logs=posterior_logs,
        prior_means=means @ path,
        prior_logs=logs @ path,
        frame_mask=frame_mask,
        text=text,
        text_mask=text_mask,
        durations=path.sum(2)[:, None],
        token_of_frame=token_of_frame,
        conditioning=conditioning,
    )


def align(
    flowed: Tensor,
    means: Tensor,
    logs: Tensor,
    text_lengths: Tensor,
    frame_lengths: Tensor,
) -> Tensor:
    """Return the token of each frame, int64 (B, frames), -1 in the padding; no gradient."""
    scores = gaussian_scores(flowed, means, logs)
    found: Tensor = recipe_losses().maximum_path(scores, text_lengths, frame_lengths)
    return found


def encode_text(
    model: Any, input_ids: Tensor, text_lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return hidden states (B, C, tokens), prior means and logs (B, D, tokens), mask."""
    mask = length_mask(text_lengths, input_ids.shape[1])
    floating = mask.to(model.text_encoder.embed_tokens.weight.dtype)
    encoded = model.text_encoder(
        input_ids=input_ids,
        padding_mask=floating.transpose(1, 2),
        attention_mask=mask[:, 0].long(),
        return_dict=True,
    )
    return (
        encoded.last_hidden_state.transpose(1, 2),
        encoded.prior_means.transpose(1, 2),
        encoded.prior_log_variances.transpose(1, 2),
        floating,
    )


def posterior(
    model: Any,
    spectrogram: Tensor,
    mask: Tensor,
    noise: Tensor,
    conditioning: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Draw latents (B, D, frames) by ``noise`` and return them with their log-deviations."""
    encoder = model.posterior_encoder
    hidden = encoder.conv_pre(spectrogram) * mask
    hidden = encoder.wavenet(hidden, mask, conditioning)
    means, logs = (encoder.conv_proj(hidden) * mask).chunk(2, dim=1)
    return (means + noise * logs.exp()) * mask, logs


def conditioning_of(model: Any, inputs: Mapping[str, Any]) -> Tensor | None:
    """Sum of the speaker's and the language's embeddings (B, size, 1), where there are any."""
    total: Tensor | None = None
    for key, name in (("speaker_ids", "embed_speaker"), ("language_ids", "embed_language")):
        table = getattr(model, name, None)
        if table is None:
            continue
        part: Tensor = table(inputs[key])[..., None]
        total = part if total is None else total + part
    return total


def cut(values: Tensor, starts: Sequence[int], size: int) -> Tensor:
    """Return ``size`` frames of each row (B, C, frames) from its start on: (B, C, size)."""
    rows = [row[:, start : start + size] for row, start in zip(values, starts, strict=True)]
    return torch.stack(rows)


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """Bool (B, 1, size): what lies within the lengths (B,)."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None]

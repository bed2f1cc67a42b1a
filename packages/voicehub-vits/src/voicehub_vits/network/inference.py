"""Synthesis: text to waveform, with the draws of transformers' ``VitsModel`` in its order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_vits.network.generator import encode_text


class Spoken(NamedTuple):
    """One utterance.

    Attributes:
        waveform: float (samples,).
        durations: frames of each token, int64 (tokens,).
        latents: what the decoder read, float (D, frames).
    """

    waveform: Tensor
    durations: Tensor
    latents: Tensor


def speak(
    model: Any,
    input_ids: Tensor,
    conditioning: Tensor | None,
    *,
    seed: int,
    speaking_rate: float | None = None,
    noise_scale: float | None = None,
    noise_scale_duration: float | None = None,
    max_frames: int | None = None,
) -> Spoken:
    """Speak one text.

    With ``torch.manual_seed(seed)`` before it, ``VitsModel`` gives the same waveform. torch's
    global random state is left alone.

    Args:
        model: ``VitsModel`` in eval mode.
        input_ids: int64 (tokens,).
        conditioning: speaker (and language) embedding (1, size, 1), or None.
        seed: of the draws.
        speaking_rate, noise_scale, noise_scale_duration: the model's own where None.
        max_frames: what lies behind is left unsaid.

    Raises:
        DataError: durations are not finite, and ``max_frames`` does not cut them.
    """
    rate = model.speaking_rate if speaking_rate is None else speaking_rate
    spread = model.noise_scale if noise_scale is None else noise_scale
    spread_duration = (
        model.noise_scale_duration if noise_scale_duration is None else noise_scale_duration
    )
    devices = [input_ids.device] if input_ids.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        lengths = torch.tensor([len(input_ids)], device=input_ids.device)
        text, means, logs, mask = encode_text(model, input_ids[None], lengths)
        if model.config.use_stochastic_duration_prediction:
            log_durations = model.duration_predictor(
                text, mask, conditioning, reverse=True, noise_scale=spread_duration
            )
        else:
            log_durations = model.duration_predictor(text, mask, conditioning)
        durations = torch.ceil(log_durations.exp() * mask * (1.0 / rate))[0, 0]
        durations = _whole(durations, max_frames)
        # Frames lie before channels in memory there, and noise is drawn in the order of memory.
        spread_means = means[0].T.repeat_interleave(durations, dim=0).T[None]
        spread_logs = logs[0].T.repeat_interleave(durations, dim=0).T[None]
        noise = torch.randn_like(spread_means)
        prior = spread_means + noise * spread_logs.exp() * spread
        frame_mask = torch.ones_like(prior[:, :1])
        latents = model.flow(prior, frame_mask, conditioning, reverse=True)
        waveform = model.decoder(latents * frame_mask, conditioning)
    return Spoken(waveform[0, 0], durations, latents[0])


def _whole(durations: Tensor, max_frames: int | None) -> Tensor:
    """Frames of each token, int64 (tokens,): at least one in all, and at most ``max_frames``."""
    if max_frames is None:
        if not bool(durations.isfinite().all()):
            raise DataError(
                "the duration predictor asks for no finite length: the model has not learnt how "
                "long tokens last. Train it for longer, or lower noise_scale_duration."
            )
    else:
        durations = durations.nan_to_num(nan=1.0, posinf=float(max_frames))
        ends = durations.clamp(max=max_frames).cumsum(0).clamp(max=max_frames)
        durations = ends.diff(prepend=ends.new_zeros(1))
    whole = durations.long()
    if int(whole.sum()) < 1:
        whole[-1] = 1
    return whole

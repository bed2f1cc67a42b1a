"""Both sides' loss terms from a rendered batch, by name and unweighted.

Every term is a mean over the utterance's own frames, tokens or samples first, and then over
utterances: an utterance weighs the same whatever is beside it, and the update of a global batch
does not depend on how it was split (``num_items`` counts utterances). For one utterance this is
the published normalisation (KL and durations divided by the sum of their mask).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from voicehub_vits.features import Spectrogram
from voicehub_vits.losses import DiscriminatorLoss
from voicehub_vits.losses.recipe import recipe_losses
from voicehub_vits.network.durations import stochastic_nll, stochastic_sample
from voicehub_vits.network.generator import Rendered, cut

Terms = dict[str, Tensor]


def judge_apart(discriminator: Any, real: Tensor, rendered: Tensor) -> DiscriminatorLoss:
    """The discriminators' loss on both kinds of audio, each (B, 1, samples), in one pass."""
    count = real.shape[0]
    logits, _ = discriminator(torch.cat([real, rendered.detach()]))
    return recipe_losses().discriminator(
        [part[:count] for part in logits], [part[count:] for part in logits]
    )


def adversarial_terms(discriminator: Any, real: Tensor, rendered: Tensor) -> Terms:
    """``adversarial`` and ``feature_matching``; the discriminators are taken as constants."""
    with parametrize.cached():  # both passes share the normalised weights
        with torch.no_grad():
            _, real_maps = discriminator(real)
        logits, maps = discriminator(rendered)
    return {
        "adversarial": recipe_losses().generator(logits).loss,
        "feature_matching": recipe_losses().feature_matching(real_maps, maps),
    }


def reconstruction_terms(
    model: Any, spectrogram: Spectrogram, rendered: Rendered, inputs: Mapping[str, Any]
) -> Terms:
    """``mel``, ``duration`` and ``kl``: what needs no discriminator."""
    terms: Terms = {}
    if rendered.audio is not None:
        terms["mel"] = mel_distance(spectrogram, rendered.audio, inputs)
    terms["duration"] = duration_term(model, rendered, inputs)
    shares = per_utterance(rendered.frame_mask)
    total, count = recipe_losses().kl(
        rendered.flowed,
        rendered.posterior_logs,
        rendered.prior_means,
        rendered.prior_logs,
        shares,
    )
    terms["kl"] = total / count
    return terms


def mel_distance(spectrogram: Spectrogram, audio: Tensor, inputs: Mapping[str, Any]) -> Tensor:
    """L1 between the log-mels of rendered segments (B, 1, samples) and of the recordings."""
    made = spectrogram(audio[:, 0])
    segment = cut(inputs["spectrogram"], inputs["segment_starts"], made.shape[2])
    return recipe_losses().mel(made, spectrogram.mel(segment))


def duration_term(model: Any, rendered: Rendered, inputs: Mapping[str, Any]) -> Tensor:
    """Negative log-likelihood bound, or squared error of log-durations, a token."""
    shares = per_utterance(rendered.text_mask)
    arguments = (model.duration_predictor, rendered.text, rendered.text_mask)
    if model.config.use_stochastic_duration_prediction:
        noise = inputs["duration_noise"]
        sums = stochastic_nll(*arguments, rendered.durations, noise, rendered.conditioning)
        total, count = recipe_losses().stochastic_duration(sums * shares.amax((1, 2)), shares)
    else:
        predicted = model.duration_predictor(*arguments[1:], rendered.conditioning)
        total, count = recipe_losses().deterministic_duration(predicted, rendered.durations, shares)
    return total / count


def predicted_log_durations(model: Any, rendered: Rendered, inputs: Mapping[str, Any]) -> Tensor:
    """Log-durations (B, 1, tokens) as synthesis would predict them, with their gradient."""
    predictor = model.duration_predictor
    arguments = (predictor, rendered.text, rendered.text_mask)
    if model.config.use_stochastic_duration_prediction:
        noise = inputs["duration_noise"] * model.noise_scale_duration
        made = stochastic_sample(*arguments, noise, rendered.conditioning)
    else:
        made = predictor(rendered.text, rendered.text_mask, rendered.conditioning)
    return made * rendered.text_mask


def judge_durations(discriminator: Any, rendered: Rendered, log_durations: Tensor) -> Tensor:
    """Logits (B, tokens) of durations, those in the padding 0."""
    logits: Tensor = discriminator(
        rendered.text, rendered.text_mask, log_durations, rendered.conditioning
    )
    return logits


def real_log_durations(rendered: Rendered) -> Tensor:
    """Log-durations (B, 1, tokens) of the alignment."""
    return rendered.durations.clamp(min=1.0).log() * rendered.text_mask


def masked_square(logits: Tensor, target: float, mask: Tensor) -> Tensor:
    """Mean over utterances of the mean over tokens of ``(logits - target)^2``."""
    weights = per_utterance(mask)[:, 0]
    return ((logits - target).square() * weights).sum() / mask.shape[0]


def per_utterance(mask: Tensor) -> Tensor:
    """The mask (B, 1, n) divided by its sum over each utterance; it sums to B."""
    return mask / mask.sum((1, 2), keepdim=True)

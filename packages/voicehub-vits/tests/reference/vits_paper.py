"""VITS written from the paper (Kim et al. 2021) and those it builds on, one utterance at a time.

Nothing here comes from the package or from transformers: parameters are read from flat state
dicts, layers are spelled out, the alignment is a dynamic programme over Python floats, the
spectrogram a matrix of cosines. Computes in the dtype of its parameters; meant for float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Parameters = dict[str, Tensor]


# -- layers ----------------------------------------------------------------------------------


def weight(p: Parameters, name: str) -> Tensor:
    """A plain weight, or g v / |v| (Salimans and Kingma 2016) with the norm over each row."""
    if f"{name}.weight" in p:
        return p[f"{name}.weight"]
    gain = p[f"{name}.parametrizations.weight.original0"]
    direction = p[f"{name}.parametrizations.weight.original1"]
    norm = direction.flatten(1).square().sum(1).sqrt()
    return gain * direction / norm.view(-1, *[1] * (direction.dim() - 1))


def conv(p: Parameters, name: str, x: Tensor, **how: Any) -> Tensor:
    """A convolution over (channels, time)."""
    return F.conv1d(x[None], weight(p, name), p.get(f"{name}.bias"), **how)[0]


def normalise(p: Parameters, name: str, x: Tensor) -> Tensor:
    """Layer normalisation over the channels of (channels, time)."""
    centred = x - x.mean(0)
    scaled = centred / (centred.square().mean(0) + 1e-5).sqrt()
    return scaled * p[f"{name}.weight"][:, None] + p[f"{name}.bias"][:, None]


def wavenet(p: Parameters, name: str, x: Tensor, layers: int, kernel: int, g: Tensor | None):
    """Gated residual convolutions of dilation 1 with skip connections."""
    hidden = x.shape[0]
    out = torch.zeros_like(x)
    told = None if g is None else conv(p, f"{name}.cond_layer", g)
    for i in range(layers):
        a = conv(p, f"{name}.in_layers.{i}", x, padding=kernel // 2)
        if told is not None:
            a = a + told[2 * hidden * i : 2 * hidden * (i + 1)]
        gated = torch.tanh(a[:hidden]) * torch.sigmoid(a[hidden:])
        both = conv(p, f"{name}.res_skip_layers.{i}", gated)
        if i + 1 < layers:
            x = x + both[:hidden]
            out = out + both[hidden:]
        else:
            out = out + both
    return out


# -- the prior ---------------------------------------------------------------------------------


def attention(p: Parameters, name: str, x: Tensor, heads: int, window: int) -> Tensor:
    """Self-attention with relative positions up to a distance (Shaw et al. 2018)."""
    size, length = x.shape
    each = size // heads

    def project(part: str) -> Tensor:
        flat = p[f"{name}.{part}.weight"] @ x + p[f"{name}.{part}.bias"][:, None]
        return flat.view(heads, each, length)

    q, k, v = project("q_proj") / math.sqrt(each), project("k_proj"), project("v_proj")
    distance = torch.arange(length)[None] - torch.arange(length)[:, None]  # key - query
    near = distance.abs() <= window
    place = (distance + window).clamp(0, 2 * window)
    rel_k, rel_v = p[f"{name}.emb_rel_k"][0], p[f"{name}.emb_rel_v"][0]
    scores = torch.einsum("hci,hcj->hij", q, k)
    scores = scores + torch.einsum("hci,ijc->hij", q, rel_k[place] * near[..., None])
    a = scores.softmax(-1)
    out = torch.einsum("hij,hcj->hci", a, v)
    out = out + torch.einsum("hij,ijc->hci", a, rel_v[place] * near[..., None])
    flat = out.reshape(size, length)
    return p[f"{name}.out_proj.weight"] @ flat + p[f"{name}.out_proj.bias"][:, None]


def text_encoder(p: Parameters, ids: Tensor, c: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, means and log-deviations of the prior, (channels, tokens)."""
    x = p["text_encoder.embed_tokens.weight"][ids].T * math.sqrt(c.hidden_size)
    for i in range(c.num_hidden_layers):
        name = f"text_encoder.encoder.layers.{i}"
        out = attention(p, f"{name}.attention", x, c.num_attention_heads, c.window_size)
        x = normalise(p, f"{name}.layer_norm", x + out)
        side = ((c.ffn_kernel_size - 1) // 2, c.ffn_kernel_size // 2)
        h = conv(p, f"{name}.feed_forward.conv_1", F.pad(x, side)).relu()
        h = conv(p, f"{name}.feed_forward.conv_2", F.pad(h, side))
        x = normalise(p, f"{name}.final_layer_norm", x + h)
    stats = conv(p, "text_encoder.project", x)
    return x, stats[: c.flow_size], stats[c.flow_size :]


def flow(p: Parameters, x: Tensor, c: Any, g: Tensor | None) -> Tensor:
    """Volume-preserving affine couplings, channels reversed after each."""
    half = c.flow_size // 2
    for i in range(c.prior_encoder_num_flows):
        name = f"flow.flows.{i}"
        h = conv(p, f"{name}.conv_pre", x[:half])
        layers, kernel = c.prior_encoder_num_wavenet_layers, c.wavenet_kernel_size
        h = wavenet(p, f"{name}.wavenet", h, layers, kernel, g)
        x = torch.cat([x[:half], x[half:] + conv(p, f"{name}.conv_post", h)]).flip(0)
    return x


def best_path(z: Tensor, means: Tensor, logs: Tensor) -> list[int]:
    """The token of each frame on the likeliest monotonic path that skips no token."""
    frames, tokens = z.shape[1], means.shape[1]
    zs, ms, ss = (part.detach().double().numpy() for part in (z, means, logs.exp()))

    def score(i: int, j: int) -> float:
        away = (zs[:, j] - ms[:, i]) / ss[:, i]
        return float(np.sum(-0.5 * math.log(2 * math.pi) - np.log(ss[:, i]) - 0.5 * away**2))

    best = np.full((tokens, frames), -np.inf)
    for j in range(frames):
        for i in range(min(tokens, j + 1)):
            moved = best[i - 1, j - 1] if i else -np.inf
            best[i, j] = score(i, j) + (max(best[i, j - 1], moved) if j else 0.0)
    path = [tokens - 1]
    for j in range(frames - 1, 0, -1):
        i = path[-1]
        moves = i > 0 and (i == j or best[i - 1, j - 1] >= best[i, j - 1])
        path.append(i - 1 if moves else i)
    return path[::-1]


# -- durations ---------------------------------------------------------------------------------


def separable(p: Parameters, name: str, x: Tensor, layers: int, kernel: int, told=None) -> Tensor:
    """Dilated depthwise-separable convolutions (section 2.2.2 and appendix)."""
    if told is not None:
        x = x + told
    for i in range(layers):
        reach = kernel**i
        h = conv(
            p, f"{name}.convs_dilated.{i}", x, groups=x.shape[0], dilation=reach,
            padding=(kernel * reach - reach) // 2,
        )  # fmt: skip
        h = F.gelu(normalise(p, f"{name}.norms_1.{i}", h))
        h = conv(p, f"{name}.convs_pointwise.{i}", h)
        x = x + F.gelu(normalise(p, f"{name}.norms_2.{i}", h))
    return x


def spline(x: Tensor, shape: Tensor, bins: int, bound: float, scale: float):
    """One rational-quadratic spline (Durkan et al. 2019, eqs 4 and 5) at one point."""
    if not -bound <= x.item() <= bound:
        return x, torch.zeros_like(x)
    least = 1e-3

    def knots(raw: Tensor) -> Tensor:
        share = least + (1 - least * bins) * (raw / scale).softmax(0)
        inner = torch.cumsum(share, 0)[:-1]
        ends = torch.cat([inner.new_zeros(1), inner, inner.new_ones(1)])
        return 2 * bound * ends - bound

    xs, ys = knots(shape[:bins]), knots(shape[bins : 2 * bins])
    one = shape.new_ones(1)
    slopes = torch.cat([one, least + F.softplus(shape[2 * bins :]), one])
    k = sum(x.item() >= edge.item() for edge in xs[1:-1])
    width, height = xs[k + 1] - xs[k], ys[k + 1] - ys[k]
    s, t = height / width, (x - xs[k]) / width
    bottom = s + (slopes[k + 1] + slopes[k] - 2 * s) * t * (1 - t)
    y = ys[k] + height * (s * t**2 + slopes[k] * t * (1 - t)) / bottom
    top = s**2 * (slopes[k + 1] * t**2 + 2 * s * t * (1 - t) + slopes[k] * (1 - t) ** 2)
    return y, top.log() - 2 * bottom.log()


def duration_flow(p: Parameters, name: str, z: Tensor, told: Tensor, c: Any):
    """An affine layer and spline couplings over two channels, exchanged after each."""
    scale = p[f"{name}.0.log_scale"]
    z = p[f"{name}.0.translate"] + scale.exp() * z
    log_det = scale.sum() * z.shape[1]
    z = z.flip(0)
    bins, layers = c.duration_predictor_flow_bins, c.depth_separable_num_layers
    for i in range(1, c.duration_predictor_num_flows + 1):
        h = conv(p, f"{name}.{i}.conv_pre", z[:1])
        kernel = c.duration_predictor_kernel_size
        h = separable(p, f"{name}.{i}.conv_dds", h, layers, kernel, told)
        h = conv(p, f"{name}.{i}.conv_proj", h)
        moved = []
        for t in range(z.shape[1]):
            y, log = spline(
                z[1, t], h[:, t], bins, c.duration_predictor_tail_bound, math.sqrt(c.hidden_size)
            )
            moved.append(y)
            log_det = log_det + log
        z = torch.stack([torch.stack(moved), z[0]])  # exchanged
    return z, log_det


def stochastic_duration(p: Parameters, x: Tensor, d: Tensor, noise: Tensor, c: Any, g):
    """-log p(d | text) bounded with dequantisation u and augmentation v (eq. 7), a token."""
    name, layers = "duration_predictor", c.depth_separable_num_layers
    kernel = c.duration_predictor_kernel_size
    h = conv(p, f"{name}.conv_pre", x.detach())
    if g is not None:
        h = h + conv(p, f"{name}.cond", g.detach())
    h = conv(p, f"{name}.conv_proj", separable(p, f"{name}.conv_dds", h, layers, kernel))
    told = conv(p, f"{name}.post_conv_pre", d[None])
    told = separable(p, f"{name}.post_conv_dds", told, layers, kernel)
    told = conv(p, f"{name}.post_conv_proj", told)
    q, log_det_q = duration_flow(p, f"{name}.post_flows", noise, h + told, c)
    u = torch.sigmoid(q[0])
    log_det_q = log_det_q + (u * (1 - u)).log().sum()
    log_q = (-0.5 * noise**2 - 0.5 * math.log(2 * math.pi)).sum() - log_det_q
    rest = (d - u).clamp(min=1e-5).log()
    z, log_det = duration_flow(p, f"{name}.flows", torch.stack([rest, q[1]]), h, c)
    log_det = log_det - rest.sum()  # d log(d - u)
    log_p = (-0.5 * z**2 - 0.5 * math.log(2 * math.pi)).sum() + log_det
    return (log_q - log_p) / len(d)


def plain_duration(p: Parameters, x: Tensor, c: Any, g: Tensor | None) -> Tensor:
    """Log-durations of the deterministic predictor (tokens,)."""
    name, side = "duration_predictor", c.duration_predictor_kernel_size // 2
    h = x.detach()
    if g is not None:
        h = h + conv(p, f"{name}.cond", g.detach())
    for i in (1, 2):
        h = conv(p, f"{name}.conv_{i}", h, padding=side).relu()
        h = normalise(p, f"{name}.norm_{i}", h)
    return conv(p, f"{name}.proj", h)[0]


# -- audio -------------------------------------------------------------------------------------


def decoder(p: Parameters, z: Tensor, c: Any, g: Tensor | None) -> Tensor:
    """HiFi-GAN's generator (Kong et al. 2020), V1 in small: (samples,)."""
    x = conv(p, "decoder.conv_pre", z, padding=3)
    if g is not None:
        x = x + conv(p, "decoder.cond", g)
    block = 0
    for i, (rate, kernel) in enumerate(zip(c.upsample_rates, c.upsample_kernel_sizes, strict=True)):
        name = f"decoder.upsampler.{i}"
        how = {"stride": rate, "padding": (kernel - rate) // 2}
        x = F.leaky_relu(x, c.leaky_relu_slope)
        x = F.conv_transpose1d(x[None], weight(p, name), p[f"{name}.bias"], **how)[0]
        total = torch.zeros_like(x)
        for size, dilations in zip(c.resblock_kernel_sizes, c.resblock_dilation_sizes, strict=True):
            h = x
            for j, dilation in enumerate(dilations):
                name = f"decoder.resblocks.{block}"
                r = F.leaky_relu(h, c.leaky_relu_slope)
                reach = dilation * (size - 1) // 2
                r = conv(p, f"{name}.convs1.{j}", r, dilation=dilation, padding=reach)
                r = F.leaky_relu(r, c.leaky_relu_slope)
                h = h + conv(p, f"{name}.convs2.{j}", r, padding=(size - 1) // 2)
            total = total + h
            block += 1
        x = total / len(c.resblock_kernel_sizes)
    return torch.tanh(conv(p, "decoder.conv_post", F.leaky_relu(x, 0.01), padding=3))[0]


def log_mel(audio: Tensor, a: Any) -> Tensor:
    """Log-mel of a waveform with reflected ends: (mels, frames)."""
    return (filterbank(a).to(audio) @ magnitudes(audio, a)).clamp(min=1e-5).log()


def magnitudes(audio: Tensor, a: Any) -> Tensor:
    """sqrt(|STFT|^2 + 1e-6) by a matrix of cosines and sines: (bins, frames)."""
    size, hop = a.filter_length, a.hop_length
    side = (size - hop) // 2
    left = audio[1 : side + 1].flip(0)
    right = audio[-side - 1 : -1].flip(0)
    padded = torch.cat([left, audio, right])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(a.win_length) / a.win_length)
    angle = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    cosines = torch.from_numpy(np.cos(angle) * window).to(audio)
    sines = torch.from_numpy(np.sin(angle) * window).to(audio)
    frames = torch.stack(
        [padded[t : t + size] for t in range(0, len(padded) - size + 1, hop)], dim=1
    )
    return ((cosines @ frames) ** 2 + (sines @ frames) ** 2 + 1e-6).sqrt()


def filterbank(a: Any) -> Tensor:
    """Slaney's triangles of equal area between points evenly spaced in mels."""

    def to_hz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    def to_mel(hz: float) -> float:
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    top = a.mel_fmax or a.sampling_rate / 2
    low, high, count = to_mel(a.mel_fmin), to_mel(top), a.num_mel_channels
    points = [to_hz(low + (high - low) * i / (count + 1)) for i in range(count + 2)]
    bins = [i * a.sampling_rate / a.filter_length for i in range(a.filter_length // 2 + 1)]
    rows = []
    for left, centre, right in zip(points, points[1:], points[2:], strict=False):
        up = [(f - left) / (centre - left) for f in bins]
        down = [(right - f) / (right - centre) for f in bins]
        area = 2 / (right - left)
        rows.append([area * max(0.0, min(u, d)) for u, d in zip(up, down, strict=True)])
    return torch.tensor(rows, dtype=torch.float64)


def judge(p: Parameters, audio: Tensor, periods: list[int]):
    """Logits and feature maps of the scale discriminator and of one for each period."""
    judged = []
    for number in range(-1, len(periods)):
        name = "scale" if number < 0 else f"periods.{number}"
        if number < 0:
            x, how = audio[None, None], [(1, 7), (4, 20), (4, 20), (4, 20), (4, 20), (1, 2)]
        else:
            period = periods[number]
            missing = -len(audio) % period
            tail = audio[-missing - 1 : -1].flip(0) if missing else audio[:0]
            x = torch.cat([audio, tail]).view(1, 1, -1, period)
            how = [((3, 1), (2, 0))] * 4 + [((1, 1), (2, 0))]
        maps = []
        for i, (stride, padding) in enumerate(how):
            w = weight(p, f"{name}.layers.{i}")
            apply = F.conv1d if number < 0 else F.conv2d
            groups = x.shape[1] // w.shape[1]
            x = apply(x, w, p[f"{name}.layers.{i}.bias"], stride, padding, 1, groups)
            x = torch.where(x > 0, x, 0.1 * x)
            maps.append(x)
        apply, padding = (F.conv1d, 1) if number < 0 else (F.conv2d, (1, 0))
        x = apply(x, weight(p, f"{name}.output"), p[f"{name}.output.bias"], 1, padding)
        judged.append((x.flatten(), [*maps, x]))
    return judged


def judge_durations(p: Parameters, text: Tensor, logs: Tensor, g: Tensor | None) -> Tensor:
    """Logits (tokens,) of VITS2's discriminator of durations."""
    h = text.detach()
    if g is not None:
        h = h + conv(p, "condition", g.detach())
    for i in range(2):
        h = normalise(p, f"text_norms.{i}", conv(p, f"text.{i}", h, padding=1).relu())
    h = torch.cat([h, conv(p, "duration", logs[None])])
    for i in range(2):
        h = normalise(p, f"joint_norms.{i}", conv(p, f"joint.{i}", h, padding=1).relu())
    return (p["output.weight"] @ h + p["output.bias"][:, None])[0]


# -- the objective ------------------------------------------------------------------------------


@dataclass
class Utterance:
    """One utterance without padding, and its draws."""

    ids: Tensor
    audio: Tensor
    start: int
    posterior_noise: Tensor
    duration_noise: Tensor
    speaker: int
    language: int


@dataclass
class Setting:
    """Parameters by part, and sizes: ``c`` as VitsConfig, ``a`` as the acoustic settings."""

    generator: Parameters
    discriminator: Parameters
    durations: Parameters | None
    c: Any
    a: Any
    periods: list[int]


def terms(setting: Setting, u: Utterance) -> dict[str, dict[str, Tensor]]:
    """All terms of all phases for one utterance."""
    p, c, a = setting.generator, setting.c, setting.a
    g = None
    for table, row in (("embed_speaker", u.speaker), ("embed_language", u.language)):
        if f"{table}.weight" in p:
            part = p[f"{table}.weight"][row][:, None]
            g = part if g is None else g + part
    linear = magnitudes(u.audio, a)
    h = conv(p, "posterior_encoder.conv_pre", linear)
    layers, kernel = c.posterior_encoder_num_wavenet_layers, c.wavenet_kernel_size
    h = wavenet(p, "posterior_encoder.wavenet", h, layers, kernel, g)
    stats = conv(p, "posterior_encoder.conv_proj", h)
    mean, logs_q = stats[: c.flow_size], stats[c.flow_size :]
    z = mean + u.posterior_noise * logs_q.exp()
    z_p = flow(p, z, c, g)
    x, m, logs = text_encoder(p, u.ids, c)
    path = best_path(z_p, m, logs)
    m_p, logs_p = m[:, path], logs[:, path]
    durations = torch.tensor([float(path.count(i)) for i in range(len(u.ids))]).to(z)
    kl = logs_p - logs_q - 0.5 + 0.5 * (z_p - m_p) ** 2 * (-2 * logs_p).exp()

    count = a.segment_size // a.hop_length
    made = decoder(p, z[:, u.start : u.start + count], c, g)
    real = u.audio[u.start * a.hop_length : u.start * a.hop_length + a.segment_size]
    target = (filterbank(a).to(z) @ linear[:, u.start : u.start + count]).clamp(min=1e-5).log()
    of_real = judge(setting.discriminator, real, setting.periods)
    of_made = judge(setting.discriminator, made, setting.periods)
    of_constant = judge(setting.discriminator, made.detach(), setting.periods)
    matched = sum(
        (there.detach() - here).abs().mean()
        for (_, theirs), (_, ours) in zip(of_real, of_made, strict=True)
        for there, here in zip(theirs, ours, strict=True)
    )
    generator = {
        "mel": (log_mel(made, a) - target).abs().mean(),
        "kl": kl.sum() / kl.shape[1],
        "adversarial": sum(((1 - logits) ** 2).mean() for logits, _ in of_made),
        "feature_matching": 2 * matched,
    }
    if c.use_stochastic_duration_prediction:
        generator["duration"] = stochastic_duration(p, x, durations, u.duration_noise, c, g)
        predicted = None
    else:
        predicted = plain_duration(p, x, c, g)
        generator["duration"] = ((predicted - durations.log()) ** 2).mean()
    found = {
        "discriminator": {
            "adversarial": sum(((1 - logits) ** 2).mean() for logits, _ in of_real)
            + sum((logits**2).mean() for logits, _ in of_constant)
        },
        "generator": generator,
    }
    if setting.durations is not None:
        q = setting.durations
        real_logits = judge_durations(q, x, durations.log(), g)
        made_logits = judge_durations(q, x, predicted.detach(), g)
        loss = ((1 - real_logits) ** 2).mean() + (made_logits**2).mean()
        found["duration_discriminator"] = {"adversarial": loss}
        logits = judge_durations(q, x, predicted, g)
        generator["duration_adversarial"] = ((1 - logits) ** 2).mean()
    return found

"""The CTC loss over padded batches, in float32, without a silent infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.losses.divergence import consistency, uniform_divergence
from voicehub_asr_ctc.losses.ops import KERNELS, ctc_negative_log_likelihood


class CTCLoss(NamedTuple):
    """The loss of a batch.

    Attributes:
        loss: scalar, mean over ``num_items`` of each utterance's negative log-likelihood divided
            by its number of labels (1 where it has none), and over views; with what was asked for
            beside it; 0 with no item.
        num_items: utterances in that mean.
        excluded: positions in the batch that no alignment exists for; only where permitted.
        terms: detached means of ``ctc``, ``smoothing`` and ``consistency``, unweighted, where
            there are more than the first.
    """

    loss: Tensor
    num_items: int
    excluded: tuple[int, ...]
    terms: Mapping[str, Tensor]


def ctc_loss(
    logits: Tensor,
    frame_lengths: Sequence[int],
    labels: Tensor,
    label_lengths: Sequence[int],
    *,
    blank: int,
    exclude_unalignable: bool = False,
    ids: Sequence[str] | None = None,
    views: int = 1,
    label_smoothing: float = 0.0,
    consistency_weight: float = 0.0,
) -> CTCLoss:
    """Compute the loss; everything that ``torch`` would crash on or call infinite is found before.

    With label smoothing it is ``(1 - label_smoothing) ctc + label_smoothing smoothing``, the
    second the divergence of each frame from the uniform distribution (Kim et al. 2018); with
    consistency ``consistency_weight`` times the disagreement of two views is added (Yao et al.
    2024). Both are summed over an utterance's frames and divided by its labels, as the loss is.

    Args:
        logits: (views * batch, frames, tokens), any floating dtype, all utterances of the first
            view, then those of the second; the log-softmax is taken in float32 (in float64 for
            float64).
        frame_lengths: valid frames of each utterance.
        labels: int64 (batch, most labels), anything behind an utterance's own labels.
        label_lengths: labels of each utterance.
        blank: id of the blank, which no label may be.
        exclude_unalignable: leave utterances without an alignment out of the mean and say which;
            otherwise they are an error.
        ids: names of the utterances for messages.
        views: how many times the logits hold each utterance.
        label_smoothing: in [0, 1).
        consistency_weight: at least 0; needs two views.

    Raises:
        DataError: lengths do not fit the tensors, a label is out of range, or an utterance has
            no alignment.
        ValueError: consistency of other than two views.
    """
    if consistency_weight and views != 2:
        raise ValueError(f"ctc_loss: consistency needs two views of a batch, got {views}.")
    rows = labels.tolist()
    targets = [row[:length] for row, length in zip(rows, label_lengths, strict=True)]
    _check(logits, views, frame_lengths, targets, label_lengths, blank, ids)
    bad = _unalignable(frame_lengths, targets)
    if bad and not exclude_unalignable:
        raise DataError(_too_short(bad[0], frame_lengths, targets, ids))
    kept = [position for position in range(len(targets)) if position not in bad]
    if not kept:
        return CTCLoss(logits.sum() * 0.0, 0, bad, {})
    if bad:
        logits = logits[[view * len(targets) + place for view in range(views) for place in kept]]
    lengths = torch.tensor([frame_lengths[place] for place in kept] * views, device=logits.device)
    terms = _terms(
        logits,
        lengths,
        [targets[place] for place in kept] * views,
        blank,
        smooth=bool(label_smoothing),
        consistent=bool(consistency_weight),
    )
    loss = terms["ctc"]
    if label_smoothing:
        loss = (1.0 - label_smoothing) * loss + label_smoothing * terms["smoothing"]
    if consistency_weight:
        loss = loss + consistency_weight * terms["consistency"]
    told = {name: term.detach() for name, term in terms.items()} if len(terms) > 1 else {}
    return CTCLoss(loss, len(kept), bad, told)


def _unalignable(frame_lengths: Sequence[int], targets: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(
        position
        for position, (target, frames) in enumerate(zip(targets, frame_lengths, strict=True))
        if minimum_frames(target) > frames
    )


def _too_short(
    position: int,
    frame_lengths: Sequence[int],
    targets: Sequence[Sequence[int]],
    ids: Sequence[str] | None,
) -> str:
    target = targets[position]
    return (
        f"{_name(position, ids)}: {frame_lengths[position]} frames cannot hold {len(target)} "
        f"labels, which need {minimum_frames(target)}. The transcript is longer than the audio "
        "can hold: correct or drop the row."
    )


def _terms(
    logits: Tensor,
    frames: Tensor,
    targets: Sequence[Sequence[int]],
    blank: int,
    *,
    smooth: bool,
    consistent: bool,
) -> dict[str, Tensor]:
    """Mean of each term a label; of ``consistent`` rows the second half is the second view."""
    losses = _negative_log_likelihoods(logits, frames, targets, blank)
    counts = [max(1, len(target)) for target in targets]
    weights = torch.tensor(counts, dtype=losses.dtype, device=losses.device)
    terms = {"ctc": (losses / weights).mean()}
    if smooth:
        terms["smoothing"] = (uniform_divergence(logits, frames) / weights).mean()
    if consistent:
        half = len(targets) // 2
        apart = consistency(logits[:half], logits[half:], frames[:half])
        terms["consistency"] = (apart / weights[:half]).mean()
    return terms


def _negative_log_likelihoods(
    logits: Tensor, frames: Tensor, targets: Sequence[Sequence[int]], blank: int
) -> Tensor:
    """One for each row."""
    counts = [len(target) for target in targets]
    padded = torch.full((len(targets), max(counts)), blank, dtype=torch.long)
    for row, target in zip(padded, targets, strict=True):
        row[: len(target)] = torch.tensor(target, dtype=torch.long)
    return ctc_negative_log_likelihood(
        logits,
        frames,
        padded.to(logits.device),
        torch.tensor(counts, device=logits.device),
        blank=blank,
        check=False,
    )


def _check(
    logits: Tensor,
    views: int,
    frame_lengths: Sequence[int],
    targets: Sequence[Sequence[int]],
    label_lengths: Sequence[int],
    blank: int,
    ids: Sequence[str] | None,
) -> None:
    rows = len(logits) if logits.ndim == 3 else -1
    if rows != views * len(frame_lengths) or rows != views * len(targets):
        raise DataError(
            f"ctc_loss: logits {tuple(logits.shape)} must be (batch, frames, tokens) with "
            f"{len(frame_lengths)} frame lengths and {len(targets)} label rows, for each of "
            f"{views} views."
        )
    _, frames, tokens = logits.shape
    for position, (length, target) in enumerate(zip(frame_lengths, targets, strict=True)):
        if not 0 <= length <= frames:
            raise DataError(
                f"{_name(position, ids)}: {length} valid frames, but the model gave {frames}. "
                "The length formula and the model disagree."
            )
        if len(target) != label_lengths[position]:
            raise DataError(
                f"{_name(position, ids)}: {label_lengths[position]} labels announced, "
                f"{len(target)} given."
            )
        wrong = [label for label in target if not 0 <= label < tokens or label == blank]
        if wrong:
            raise DataError(
                f"{_name(position, ids)}: label {wrong[0]} is the blank or outside the "
                f"{tokens} tokens of the model. The tokenizer belongs to another model."
            )


def _name(position: int, ids: Sequence[str] | None) -> str:
    return f"utterance {position}" if ids is None else f"utterance {ids[position]!r}"


LOSS = Loss(
    "asr_ctc.ctc",
    {
        "ctc_loss": ctc_loss,
        # Tensors in, tensors out: these compile in one piece.
        "negative_log_likelihood": ctc_negative_log_likelihood,
        "uniform_divergence": uniform_divergence,
        "consistency": consistency,
    },
    KERNELS,
)

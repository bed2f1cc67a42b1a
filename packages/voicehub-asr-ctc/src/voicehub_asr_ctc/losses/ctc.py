"""The CTC loss over padded batches, in float32, without a silent infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.losses.ops import KERNELS, ctc_negative_log_likelihood


class CTCLoss(NamedTuple):
    """The loss of a batch.

    Attributes:
        loss: scalar, mean over ``num_items`` of each utterance's negative log-likelihood divided
            by its number of labels (1 where it has none); 0 with no item.
        num_items: utterances in that mean.
        excluded: positions in the batch that no alignment exists for; only where permitted.
    """

    loss: Tensor
    num_items: int
    excluded: tuple[int, ...]


def ctc_loss(
    logits: Tensor,
    frame_lengths: Sequence[int],
    labels: Tensor,
    label_lengths: Sequence[int],
    *,
    blank: int,
    exclude_unalignable: bool = False,
    ids: Sequence[str] | None = None,
) -> CTCLoss:
    """Compute the loss; everything that ``torch`` would crash on or call infinite is found before.

    Args:
        logits: (batch, frames, tokens), any floating dtype; the log-softmax is taken in float32
            (in float64 for float64).
        frame_lengths: valid frames of each utterance.
        labels: int64 (batch, most labels), anything behind an utterance's own labels.
        label_lengths: labels of each utterance.
        blank: id of the blank, which no label may be.
        exclude_unalignable: leave utterances without an alignment out of the mean and say which;
            otherwise they are an error.
        ids: names of the utterances for messages.

    Raises:
        DataError: lengths do not fit the tensors, a label is out of range, or an utterance has
            no alignment.
    """
    rows = labels.tolist()
    targets = [row[:length] for row, length in zip(rows, label_lengths, strict=True)]
    _check(logits, frame_lengths, targets, label_lengths, blank, ids)
    bad = tuple(
        position
        for position, (target, frames) in enumerate(zip(targets, frame_lengths, strict=True))
        if minimum_frames(target) > frames
    )
    if bad and not exclude_unalignable:
        position = bad[0]
        raise DataError(
            f"{_name(position, ids)}: {frame_lengths[position]} frames cannot hold "
            f"{label_lengths[position]} labels, which need {minimum_frames(targets[position])}. "
            "The transcript is longer than the audio can hold: correct or drop the row."
        )
    kept = [position for position in range(len(targets)) if position not in bad]
    if not kept:
        return CTCLoss(logits.sum() * 0.0, 0, bad)
    scores = logits[kept] if bad else logits
    lengths = [frame_lengths[position] for position in kept]
    return CTCLoss(_mean(scores, lengths, [targets[i] for i in kept], blank), len(kept), bad)


def _mean(
    logits: Tensor, frames: Sequence[int], targets: Sequence[Sequence[int]], blank: int
) -> Tensor:
    """Mean over utterances of the negative log-likelihood a label."""
    device = logits.device
    counts = [len(target) for target in targets]
    padded = torch.full((len(targets), max(counts)), blank, dtype=torch.long)
    for row, target in zip(padded, targets, strict=True):
        row[: len(target)] = torch.tensor(target, dtype=torch.long)
    losses = ctc_negative_log_likelihood(
        logits,
        torch.tensor(frames, device=device),
        padded.to(device),
        torch.tensor(counts, device=device),
        blank=blank,
        check=False,
    )
    weights = torch.tensor([max(1, n) for n in counts], dtype=losses.dtype, device=device)
    return (losses / weights).mean()


def _check(
    logits: Tensor,
    frame_lengths: Sequence[int],
    targets: Sequence[Sequence[int]],
    label_lengths: Sequence[int],
    blank: int,
    ids: Sequence[str] | None,
) -> None:
    if logits.ndim != 3 or len(frame_lengths) != len(logits) or len(targets) != len(logits):
        raise DataError(
            f"ctc_loss: logits {tuple(logits.shape)} must be (batch, frames, tokens) with "
            f"{len(frame_lengths)} frame lengths and {len(targets)} label rows."
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


LOSS = Loss("asr_ctc.ctc", {"ctc_loss": ctc_loss}, KERNELS)

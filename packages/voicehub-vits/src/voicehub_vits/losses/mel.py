"""Reconstruction: the distance of log-mel spectra over the generated segment."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from voicehub.errors import DataError
from voicehub.kernels import Loss
from voicehub_vits.losses.precision import widened


def mel_l1(generated: Tensor, reference: Tensor) -> Tensor:
    """Mean absolute difference of two log-mel spectra (Kim et al. 2021, VITS, eq. 2).

    The generated one is computed with gradient from the segment's audio; the reference comes from
    the recording's linear spectrum, which the posterior encoder needed already.

    Args:
        generated: (batch, mels, frames) or the other way round, natural logarithms.
        reference: the same shape; taken without gradient.

    Returns:
        Scalar, in nepers.

    Raises:
        DataError: the shapes differ.
    """
    if generated.shape != reference.shape:
        raise DataError(
            f"mel_l1: generated {tuple(generated.shape)} and reference {tuple(reference.shape)} "
            "differ: segment, hop length and upsampling rates do not belong together."
        )
    return functional.l1_loss(widened(generated), widened(reference.detach()))


LOSS = Loss("vits.mel", {"mel_l1": mel_l1})

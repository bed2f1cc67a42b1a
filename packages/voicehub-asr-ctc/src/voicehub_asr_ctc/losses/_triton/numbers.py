"""Numbers that never underflow: a float64 mantissa and a float64 exponent of 2 beside it.

A sum over paths falls far below 1e-308 within some hundred frames, and a state may fall behind
its neighbours by as much and still carry all paths in the end. Here every state has an exponent of
its own, a whole number, and its mantissa is brought back to [1, 2) in every frame, so that no path
is lost and no frame's rounding grows with the loss; logarithms are not needed. Nor are divisions:
in float64 they call a function, around which registers are spilled.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Exponent of zero: below all others, and finite, so that differences are defined.
LOW = tl.constexpr(-1e300)
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def power(exponent):
    """2 to a whole number of at most 1023, 0 or so below -1022; as float64."""
    whole = (tl.maximum(exponent, -1022.0) + 1023.0).to(tl.int64)
    return (whole << 52).to(tl.float64, bitcast=True)


@triton.jit
def normalised(mantissa, exponent):
    """The mantissa in [1, 2); zero keeps mantissa 0, what is no number stays so."""
    bits = mantissa.to(tl.int64, bitcast=True)
    shift = tl.where(mantissa > 0.0, (bits >> 52) - 1023, 0)
    mantissa = (bits - (shift << 52)).to(tl.float64, bitcast=True)
    return mantissa, tl.where(mantissa == 0.0, LOW, exponent + shift.to(tl.float64))


@triton.jit
def inverse(mantissa):
    """One over a number in [1, 2), to the last digit or two, by Newton's iteration."""
    guess = (1.0 / mantissa.to(tl.float32)).to(tl.float64)
    guess *= 2.0 - mantissa * guess
    return guess * (2.0 - mantissa * guess)


@triton.jit
def packed(mantissa, exponent):
    """Both in one float64, exponent + mantissa - 1: exact to 1e-10 below exponents of a million."""
    return tl.where(mantissa == 0.0, float("-inf"), exponent + (mantissa - 1.0))


@triton.jit
def unpacked(value):
    """Mantissa and exponent of a packed number."""
    zero = value == float("-inf")
    value = tl.where(zero, 0.0, value)
    exponent = tl.floor(value)
    mantissa = tl.where(zero, 0.0, value - exponent + 1.0)
    return mantissa, tl.where(zero, LOW, exponent)


@triton.jit
def probability(logit, peak, share):
    """exp(logit - peak) * share as mantissa, between the share and 2, and exponent."""
    power_of_two = (logit - peak) * LOG2_E
    zero = power_of_two == float("-inf")
    power_of_two = tl.where(zero, 0.0, power_of_two)
    exponent = tl.floor(power_of_two)
    mantissa = tl.where(zero, 0.0, tl.exp2(power_of_two - exponent)) * share
    return mantissa, tl.where(exponent == exponent, exponent, 0.0)


@triton.jit
def narrowed(value, pointer):
    """A value as what a pointer points at; from float64 to half precision by way of float32."""
    if pointer.dtype.element_ty != tl.float64:
        value = value.to(tl.float32)
    return value.to(pointer.dtype.element_ty)

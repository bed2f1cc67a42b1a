"""The AAM benchmark compares equal work and sees what a system allocates."""

from __future__ import annotations

import aam_softmax
import pytest
import torch
from allocations import peak_bytes

CLASSES = 400


@pytest.mark.parametrize("name", aam_softmax.SYSTEMS)
def test_all_systems_have_one_loss_and_one_gradient(name: str) -> None:
    inputs = aam_softmax.make_inputs(CLASSES)
    expected = aam_softmax.step(aam_softmax.textbook, inputs)
    found = aam_softmax.step(aam_softmax.SYSTEMS[name], inputs)
    aam_softmax.check_that_they_agree(name, found, expected)
    assert expected[0] > 0 and expected[2].abs().max() > 0


def test_a_system_that_computes_something_else_is_found_out() -> None:
    inputs = aam_softmax.make_inputs(CLASSES)
    expected = aam_softmax.step(aam_softmax.textbook, inputs)
    other = aam_softmax.step(lambda e, w, y: 2.0 * aam_softmax.textbook(e, w, y), inputs)
    with pytest.raises(RuntimeError, match="other: loss differs"):
        aam_softmax.check_that_they_agree("other", other, expected)


def test_the_peak_is_what_lives_at_once() -> None:
    def one_after_the_other() -> None:
        for _ in range(3):
            torch.empty(250_000)

    def at_once() -> None:
        held = [torch.empty(250_000) for _ in range(3)]
        assert len(held) == 3

    assert peak_bytes(one_after_the_other) == pytest.approx(1e6, rel=0.01)
    assert peak_bytes(at_once) == pytest.approx(3e6, rel=0.01)

"""How gradients are cut into messages and come back, without other processes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from voicehub.errors import RecipeError
from voicehub.strategies import gradient_buckets as buckets


def parameters(*sizes: int, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def test_buckets_hold_every_parameter_once_in_order() -> None:
    given = parameters(200_000, 10, 200_000, 3)
    cut = buckets._cut(given)
    assert [p for bucket in cut for p in bucket.parameters] == given
    assert len(cut) > 1


def test_a_bucket_has_one_dtype() -> None:
    given = [*parameters(4, 5), *parameters(6, dtype=torch.float64), *parameters(7)]
    cut = buckets._cut(given)
    assert sorted(len(bucket.parameters) for bucket in cut) == [1, 3]
    for bucket in cut:
        assert len({p.dtype for p in bucket.parameters}) == 1


def test_a_message_says_which_gradients_there_are() -> None:
    first, second, third = parameters(2, 3, 1)
    first.grad, third.grad = torch.tensor([1.0, 2.0]), torch.tensor([5.0])
    message = torch.cat(buckets._parts([first, second, third]))
    assert message.tolist() == [1, 2, 0, 0, 0, 5, 1, 0, 1]
    buckets._unpack([first, second, third], 2 * message)
    assert first.grad is not None and first.grad.tolist() == [2, 4]
    assert second.grad is None
    assert third.grad is not None and third.grad.tolist() == [10]


def test_sparse_gradients_are_refused() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RecipeError, match="sparse=False"):
        buckets._parts([table.weight])

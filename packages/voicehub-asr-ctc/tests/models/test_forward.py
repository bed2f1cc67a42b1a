"""Running utterances apart gives each what it has alone, in the batch's order."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from voicehub_asr_ctc.forward import run_apart


def test_order_and_padding():
    def network(part):
        x = part["x"]
        # Depends on all of its input, padding included.
        scores = torch.cumsum(x, 1)[:, ::2] + x.mean(1, keepdim=True)
        return SimpleNamespace(logits=scores[..., None])

    lengths = [4, 6, 4, 1]
    x = torch.full((4, 6), 100.0)
    for row, length in zip(x, lengths, strict=True):
        row[:length] = torch.randn(length)
    seen = []
    out = run_apart(network, {"x": x}, lengths, before=lambda p, n: seen.append((p, n)))
    assert out.shape == (4, 3, 1)
    assert seen == [([0, 2], 4), ([1], 6), ([3], 1)]
    for row, clip, length in zip(out, x, lengths, strict=True):
        alone = network({"x": clip[None, :length]}).logits[0]
        torch.testing.assert_close(row[: len(alone)], alone)
        assert (row[len(alone) :] == 0).all()

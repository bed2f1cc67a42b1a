"""The module with the prototypes, and its schedule."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from voicehub.errors import ConfigurationError, DataError
from voicehub_xvector.loss_config import LossConfig
from voicehub_xvector.losses import build_loss, margin_scale, warmup_share
from voicehub_xvector.losses.aam_softmax import aam_softmax


def build(classes=5, size=8, **options):
    torch.manual_seed(0)
    return build_loss(LossConfig(**options), size, classes)


def batch(loss, count=6):
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(count, loss.weight.shape[1], generator=generator)
    return embeddings, torch.randint(0, loss.num_classes, (count,), generator=generator)


@pytest.mark.parametrize("kind", ["softmax", "am", "aam"])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0])
def test_the_sum_over_items_with_the_share_of_both_margins(kind, scale):
    loss = build(kind=kind, sub_centres=2, inter_top_k=2, inter_top_k_margin=0.1)
    embeddings, labels = batch(loss)
    total, items = loss(embeddings, labels, margin_scale=scale)
    expected = aam_softmax(
        embeddings,
        loss.weight,
        labels,
        scale=30.0,
        margin=0.0 if kind == "softmax" else 0.2 * scale,
        angular=kind == "aam",
        sub_centres=2,
        inter_top_k=2,
        inter_margin=0.1 * scale,
    )
    assert items == 6 and torch.equal(total, expected.sum())


def test_all_kinds_without_margins_agree():
    totals = []
    for kind in ("softmax", "am", "aam"):
        loss = build(kind=kind)
        totals.append(float(loss(*batch(loss), margin_scale=0.0)[0].detach()))
    assert totals[0] == pytest.approx(totals[1], rel=1e-6) == pytest.approx(totals[2], rel=1e-6)


def test_cosines_are_those_of_the_nearest_sub_centre():
    loss = build(sub_centres=3)
    embeddings, _ = batch(loss)
    every = functional.cosine_similarity(embeddings[:, None], loss.weight[None], dim=2)
    torch.testing.assert_close(loss.cosines(embeddings), every.view(6, 5, 3).amax(2))


@pytest.mark.parametrize("sub_centres", [1, 2])
def test_distances_of_prototypes_and_the_nearest_classes(sub_centres):
    loss = build(classes=9, sub_centres=sub_centres)
    distances = loss.prototype_distances()
    units = functional.normalize(loss.weight.detach()).view(9, sub_centres, -1)
    for a in range(9):
        for b in range(9):
            nearest = min(1 - float(x @ y) for x in units[a] for y in units[b])
            assert float(distances[a, b]) == pytest.approx(0.0 if a == b else nearest, abs=1e-5)
    wanted = torch.tensor([4, 0, 8])
    found = loss.nearest_classes(wanted, 3, chunk=2)
    for row, own in zip(found.tolist(), wanted.tolist(), strict=True):
        others = sorted((c for c in range(9) if c != own), key=lambda c: float(distances[own, c]))
        assert row == others[:3]


def test_what_would_not_fit_is_refused():
    loss = build(classes=20_000, size=2)
    with pytest.raises(DataError, match="use nearest_classes instead"):
        loss.prototype_distances()
    with pytest.raises(DataError, match="20000 nearest classes wanted of 19999 others"):
        loss.nearest_classes(torch.tensor([0]), 20_000)
    with pytest.raises(ConfigurationError, match="0 classes"):
        build(classes=0)


def test_the_margin_grows_to_its_full_size_and_stays():
    config = LossConfig(margin_warmup=10, margin_warmup_unit="epoch")
    shares = [margin_scale(config, step=999, epoch=epoch) for epoch in (0, 1, 9, 10, 25)]
    assert shares == [0.0, 0.1, 0.9, 1.0, 1.0]
    by_step = LossConfig(margin_warmup=200, margin_warmup_unit="step")
    assert [margin_scale(by_step, step=step, epoch=7.0) for step in (0, 50, 400)] == [0, 0.25, 1]
    assert margin_scale(LossConfig(), step=0, epoch=0.0) == 1.0
    with pytest.raises(ConfigurationError, match="position must be finite and >= 0, got -1"):
        warmup_share(-1, 5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "softmax", "margin": 0.3}, "margin does nothing"),
        ({"inter_top_k_margin": 0.3}, "inter_top_k_margin does nothing"),
        ({"margin_warmup_unit": "step"}, "margin_warmup_unit does nothing"),
        ({"kind": "arcface"}, "kind"),
        ({"margins": 0.3}, "margins"),
    ],
)
def test_settings_that_nothing_reads_are_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        LossConfig(**values)

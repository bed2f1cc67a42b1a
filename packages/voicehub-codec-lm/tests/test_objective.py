"""The loss of every layout, its normalisation, and packing."""

from __future__ import annotations

import pytest
import torch
from codec_lm_steps import adapter_of, gradients, run, train

from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub.losses.linear_cross_entropy.reference import linear_cross_entropy_reference
from voicehub.testing.samples import draw_items
from voicehub_codec_lm.conformance import DepthCase, FlatCase
from voicehub_codec_lm.objective import best_codes


def make(case, **settings):
    return adapter_of(case.wrapper(**settings))


def test_equals_the_float64_loop_over_positions(case):
    weights = [0.5, 2.0]
    adapter = make(case, loss={"codebook_weights": weights})
    batch = case.collate(draw_items(case, 3, 1))
    asked = adapter.model.network.ask(adapter.module, batch)
    total = items = 0.0
    for heads in asked.heads:
        given = heads.position_weights
        sums = linear_cross_entropy_reference(heads.hidden, heads.weight, heads.labels, given)
        total += float((sums * heads.head_weights.double()).sum())
        counted = (heads.labels != IGNORED).double() * (1.0 if given is None else given.double())
        items += float((counted.sum(0) * heads.head_weights.double()).sum())
    output = run(adapter, batch)
    assert float(output.loss.detach()) == pytest.approx(total / items, rel=1e-6)
    assert float(output.num_items) == pytest.approx(items)


def test_every_codebook_counts_every_frame_and_its_end(case):
    """With equal weights the items are codebooks times frames and ends (flat: one end)."""
    adapter = make(case)
    items = draw_items(case, 3, 2)
    frames = sum(item.codes.shape[1] for item in items)
    flat = case.model_type == FlatCase.model_type
    expected = 2 * frames + 3 if flat else 2 * (frames + 3)
    assert float(run(adapter, case.collate(items)).num_items) == pytest.approx(expected)


def test_training_without_logits_logs_what_training_with_them_does(case):
    batches = [case.collate(draw_items(case, 4, seed)) for seed in range(8)]
    fused = train(make(case), batches)
    plain = train(make(case, loss={"fused": False}), batches)
    assert len(set(fused)) == len(fused)
    assert fused == pytest.approx(plain, rel=1e-5)


def test_accuracy_counts_the_most_likely_codes(case):
    adapter = make(case)
    batch = case.collate(draw_items(case, 4, 3))
    output = run(adapter, batch, training=False)
    rows = adapter.evaluation_rows(output, batch, batch["batch_info"])
    asked = adapter.model.network.ask(adapter.module, batch)
    right = sum(int((best_codes(h) == h.labels).sum()) for h in asked.heads)
    metrics = adapter.evaluation_metrics(rows)
    count = sum(int((h.labels != IGNORED).sum()) for h in asked.heads)
    assert metrics["accuracy"] == pytest.approx(right / count)


# -- packing ------------------------------------------------------------------------------------


@pytest.fixture(params=[FlatCase, DepthCase], ids=lambda packed: packed.model_type, scope="module")
def packing_case(request):
    return request.param()


def test_packed_equals_unpacked(packing_case):
    adapter = make(packing_case)
    items = draw_items(packing_case, 6, 4)
    network = adapter.model.network
    packed, apart = network.collator(120)(items), network.collator()(items)
    assert packed["segments"].shape[0] < len(items) and int(packed["segments"].max()) > 1
    loss, own = gradients(adapter, packed)
    expected, other = gradients(adapter, apart)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert own.keys() == other.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, other[name], rtol=1e-5, atol=1e-6, msg=name)


def test_one_utterance_changes_nothing_of_its_neighbour(packing_case):
    adapter = make(packing_case)
    adapter.eval_mode()
    first, second = draw_items(packing_case, 2, 5)
    changed = first._replace(codes=(first.codes + 1) % 8, prompt=tuple(reversed(first.prompt)))
    collate = adapter.model.network.collator(1000)
    before, after = collate([first, second]), collate([changed, second])
    assert before["segments"].shape == after["segments"].shape
    (head, *_), (other, *_) = (
        adapter.model.network.ask(adapter.module, batch).heads for batch in (before, after)
    )
    logits, moved = (group.hidden @ group.weight[0].T for group in (head, other))
    tokens = "input_ids" if "input_ids" in before else "codes"
    inputs = before[tokens].reshape(len(logits), -1), after[tokens].reshape(len(logits), -1)
    segments = before["segments"].reshape(-1)
    touched = {int(s) for s in segments[(inputs[0] != inputs[1]).any(1)]}
    assert len(touched) == 1
    neighbour = (segments > 0) & (segments != touched.pop())
    assert neighbour.any() and torch.equal(logits[neighbour], moved[neighbour])
    assert not torch.equal(logits[~neighbour], moved[~neighbour])


def test_the_delay_layout_refuses_to_pack():
    from voicehub.errors import ConfigurationError
    from voicehub_codec_lm.conformance import DelayCase

    with pytest.raises(ConfigurationError, match="cannot pack"):
        DelayCase().wrapper().network.collator(100)


def test_text_has_a_weight_of_its_own():
    case = FlatCase()
    adapter = make(case, loss={"text_weight": 0.25})
    items = draw_items(case, 3, 6)
    batch = adapter.model.network.collator()(items)
    output = run(adapter, batch)
    plain = run(make(case), case.collate(items))
    letters = sum(len(item.prompt) - 1 for item in items)
    assert float(output.num_items) == pytest.approx(float(plain.num_items) + 0.25 * letters)
    assert set(output.losses) == {"audio", "text"}
    whole = (
        float(output.losses["audio"]) * float(plain.num_items)
        + 0.25 * float(output.losses["text"]) * letters
    )
    assert float(output.loss.detach()) == pytest.approx(whole / float(output.num_items), rel=1e-5)

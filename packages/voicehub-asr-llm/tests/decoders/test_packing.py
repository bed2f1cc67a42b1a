"""Utterances in one row are apart: loss, gradients, logits. Decoders that cannot are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_asr_llm.config import AsrLlmDataConfig
from voicehub_asr_llm.data.packing import place
from voicehub_asr_llm.decoders.loading import base_of
from voicehub_asr_llm.experiment import chosen_packing
from voicehub_asr_llm.testing import DECODERS

TEXTS = ("hello", "", "Abc d", "so it goes")
#: The head of Granite, of which the loss alone reads, is in test_head.py.
ATTENDING = [name for name in DECODERS if name not in ("qwen3_5_text", "granite")]


def cost(model, batch):
    trained = [p for p in model.network.parameters() if p.requires_grad]
    found, _ = model.network.ask(batch)
    gradients = torch.autograd.grad(found.total, trained)
    return float(found.total.detach()), torch.cat([g.flatten() for g in gradients])


@pytest.mark.parametrize("kind", ATTENDING)
def test_packed_equals_apart_in_loss_and_gradient(kind, model_of, items_of, collate):
    model = model_of("granite_speech5_ctc", kind, recipe="full")
    items = items_of(model, *TEXTS)
    singles = [cost(model, collate(model, [item])) for item in items]
    loss = sum(part for part, _ in singles)
    gradient = torch.stack([part for _, part in singles]).sum(0)
    for options in ({}, {"packing": "rows", "pack_tokens": 130}, {"packing": "batch"}):
        batch = collate(model, items, **options)
        got, slope = cost(model, batch)
        assert got == pytest.approx(loss, rel=1e-5)
        assert (slope - gradient).norm() <= 1e-5 * gradient.norm()
    assert batch["input_ids"].shape[0] == 1


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_nothing_leaks_from_one_utterance_into_the_next(kind, model_of, items_of, collate):
    model = model_of("granite_speech5_ctc", kind)
    items = items_of(model, *TEXTS)
    batch = collate(model, items, packing="batch")
    bounds = (batch["positions"][0] == 0).nonzero().flatten().tolist()

    def states():
        with torch.no_grad():
            inputs = model.network.inputs(batch, model.network.hear(batch))
            return base_of(model.network.decoder)(
                inputs_embeds=inputs, position_ids=batch["positions"], use_cache=False
            ).last_hidden_state[0]

    before = states()
    batch["audio"][1] += 0.5
    batch["input_ids"][0, bounds[1] + 3] += 1
    moved = (states() - before).abs().amax(-1) > 0
    assert moved[bounds[1] : bounds[2]].any()
    assert not moved[: bounds[1]].any()
    assert not moved[bounds[2] :].any()


def test_a_recurrent_decoder_would_leak_and_is_refused_by_name(model_of, items_of, collate):
    model = model_of("granite_speech5_ctc", "qwen3_5_text")
    items = items_of(model, *TEXTS)
    apart = sum(cost(model, collate(model, [item]))[0] for item in items)
    assert cost(model, collate(model, items))[0] == pytest.approx(apart, rel=1e-5)
    packed = cost(model, collate(model, items, packing="batch"))[0]
    assert packed != pytest.approx(apart, rel=1e-6)

    def run(packing):
        data = AsrLlmDataConfig(train=["x"], packing=packing)
        config = SimpleNamespace(data=data, model=model.config)
        return chosen_packing(config, model.decoder_source)

    with pytest.raises(ConfigurationError, match="qwen3_5_text has linear_attention layers"):
        run("rows")
    chosen, said = run("auto")
    assert chosen == "none"
    assert "linear_attention" in said


def test_packing_that_is_chosen(model_of, caplog):
    model = model_of(load=False)

    def run(packing, attention="auto"):
        model.config.decoder.attention = attention
        data = AsrLlmDataConfig(train=["x"], packing=packing)
        return chosen_packing(SimpleNamespace(data=data, model=model.config), model.decoder_source)

    assert run("auto")[0] == run("rows")[0] == "rows"
    assert run("none")[0] == "none"
    assert run("batch")[0] == "batch"
    # Its package is not installed here, which is said.
    assert run("auto", "flash_attention_2")[0] == "rows"
    assert "flash-attn, which is not installed" in caplog.text


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    packing=st.sampled_from(["none", "rows", "batch"]),
)
def test_every_utterance_has_a_place_of_its_own(lengths, packing):
    placed = place(lengths, packing, 60)
    taken = torch.zeros(placed.positions.shape, dtype=torch.long)
    for (row, first), length in zip(placed.places, lengths, strict=True):
        taken[row, first : first + length] += 1
        assert placed.positions[row, first : first + length].tolist() == list(range(length))
    assert taken.max() == 1
    assert placed.filled == pytest.approx(float(taken.float().mean()))
    # Padding begins anew, so that nothing in it sees an utterance.
    for row in range(len(taken)):
        padding = placed.positions[row][taken[row] == 0]
        assert padding.tolist() == list(range(len(padding)))
    if packing == "rows":
        assert all(row.sum() <= 60 or (row > 0).sum() in lengths for row in taken)


def test_labels_ignore_all_but_the_transcripts(model_of, items_of, collate):
    model = model_of(load=False)
    items = items_of(model, *TEXTS)
    batch = collate(model, items, packing="batch")
    count = sum(len(item.labels) for item in items)
    assert int((batch["labels"] != IGNORED).sum()) == count == int(batch["label_counts"].sum())

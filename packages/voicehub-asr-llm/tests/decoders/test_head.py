"""The fused loss where the output layer is a plain product, the model's own head elsewhere."""

from __future__ import annotations

import pytest
import torch

from voicehub.errors import CheckpointError, CheckpointMismatchError, ConfigurationError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_asr_llm.config import DecoderConfig
from voicehub_asr_llm.decoders import DecoderSource
from voicehub_asr_llm.decoders.loading import load_causal_lm
from voicehub_asr_llm.testing import DECODERS

OWN_HEAD = {"gemma2", "granite"}


@pytest.mark.parametrize("kind", DECODERS)
def test_both_ways_give_the_loss_of_the_models_own_logits(kind, model_of, items_of, collate):
    model = model_of("granite_speech5_ctc", kind)
    network = model.network
    assert network.reads_plainly == (kind not in OWN_HEAD)
    batch = collate(model, items_of(model, "hello", "Abc d"))
    found, _ = network.ask(batch, wants_best=True)
    network.fused_loss = False
    other, _ = network.ask(batch, wants_best=True)
    inputs = network.inputs(batch, network.hear(batch))
    logits = network.decoder(inputs_embeds=inputs, position_ids=batch["positions"]).logits
    asked = batch["labels"] != IGNORED
    expected = torch.nn.functional.cross_entropy(
        logits[asked], batch["labels"][asked], reduction="sum"
    )
    for loss in (found, other):
        assert float(loss.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        assert int(loss.count) == int(asked.sum())
        assert torch.equal(loss.best, logits[asked].argmax(-1))


def test_missing_weights_pickles_and_strangers_are_refused(decoder, encoder, tmp_path):
    from safetensors.torch import load_file, save_file

    with pytest.raises(ConfigurationError, match="'hubert', which is no causal language model"):
        DecoderSource(
            DecoderConfig(path=str(_with_tokenizer(encoder("hubert"), tmp_path / "hubert")))
        )
    with pytest.raises(CheckpointError, match="There is no directory"):
        DecoderSource(DecoderConfig(path=str(tmp_path / "nowhere")))
    for path in decoder("llama").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    state = load_file(tmp_path / "model.safetensors")
    state.pop("model.layers.1.mlp.up_proj.weight")
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointMismatchError, match=r"lacks 1 weights: .*up_proj"):
        load_causal_lm(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickles"):
        DecoderSource(DecoderConfig(path=str(tmp_path))).load()


def _with_tokenizer(source, target):
    from voicehub_asr_llm.testing import tiny_tokenizer

    target.mkdir()
    (target / "config.json").write_bytes((source / "config.json").read_bytes())
    tiny_tokenizer().save_pretrained(target)
    return target

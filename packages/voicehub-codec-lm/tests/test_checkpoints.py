"""Published layouts train, save, resume and export; low-rank adapters; the codec stays apart."""

from __future__ import annotations

import pytest
import torch
from codec_lm_steps import adapter_of, run, train

from voicehub.errors import ConfigurationError
from voicehub.testing.samples import draw_items
from voicehub_codec_lm.conformance import DelayCase, DepthCase, FlatCase
from voicehub_codec_lm.model import CodecLM
from voicehub_codec_lm.networks.registry import NETWORKS
from voicehub_codec_lm.testing import csm, llama, musicgen, musicgen_decoder
from voicehub_codec_lm.text import CharacterPrompts, PretrainedPrompts

BOOKS, SIZE = 2, 8
KINDS = {
    "llama": (FlatCase, lambda d: llama(d), "checkpoint"),
    "musicgen-decoder": (DelayCase, lambda d: musicgen_decoder(d, BOOKS, SIZE), "characters"),
    "musicgen": (DelayCase, lambda d: musicgen(d, BOOKS, SIZE), "checkpoint"),
    "csm": (DepthCase, lambda d: csm(d, BOOKS, SIZE), "checkpoint"),
}


def prompts_for(path, text):
    if text == "characters":
        return CharacterPrompts.build(["abcd"])
    return PretrainedPrompts.read(path)


class FromCheckpoint:
    """A case whose model starts from a checkpoint of transformers."""

    def __init__(self, kind, directory):
        case_class, write, self.text = KINDS[kind]
        self.case = case_class()
        self.model_type = self.case.model_type
        self.path = write(directory)
        self.prompts = prompts_for(self.path, self.text)

    def wrapper(self, **settings):
        _, config_class = NETWORKS[self.model_type]
        values = {"codec": {"path": self.case.codec.source}, "path": str(self.path)}
        values |= {"text": {"kind": self.text}, **settings}
        return CodecLM.from_config(
            config_class.model_validate(values),
            self.prompts,
            self.case.codec,
            model_type=self.model_type,
        )

    def items(self, count, seed):
        return [
            item._replace(prompt=self.prompts.encode(item.text, None).ids)
            for item in draw_items(self.case, count, seed)
        ]


@pytest.fixture(scope="module", params=sorted(KINDS))
def start(request, tmp_path_factory):
    return FromCheckpoint(request.param, tmp_path_factory.mktemp(request.param))


def batch_of(start, wrapper, seed=1):
    return wrapper.network.collator()(start.items(4, seed))


def test_a_checkpoint_trains_saves_and_comes_back(start, tmp_path):
    wrapper = start.wrapper()
    adapter = adapter_of(wrapper)
    losses = train(adapter, [batch_of(start, wrapper)] * 12, rate=0.1)
    assert losses[-1] < losses[0] - 0.1
    wrapper.save_pretrained(tmp_path)
    again = adapter_of(CodecLM.from_pretrained(tmp_path, model_type=start.model_type))
    batch = batch_of(start, wrapper, 2)
    expected = run(adapter, batch, training=False)
    found = run(again, batch, training=False)
    assert torch.equal(found.loss, expected.loss)
    assert torch.equal(found.predictions, expected.predictions)


def test_a_run_from_a_checkpoint_resumes(start, tmp_path):
    from voicehub.trainer.arguments import TrainingArguments
    from voicehub.trainer.trainer import Trainer

    def trainer():
        wrapper = start.wrapper()
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=4, save_strategy="steps", save_steps=2,
            per_device_train_batch_size=2, logging_steps=1, use_cpu=True, report_to=[],
        )  # fmt: skip
        return Trainer(
            model=wrapper,
            args=arguments,
            train_dataset=start.items(6, 3),
            data_collator=wrapper.network.collator(),
        )

    whole = trainer()
    whole.train()
    again = trainer()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    own, other = whole.adapter.state_dict(), again.adapter.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in own.items())


def test_the_end_is_learned_where_the_checkpoint_had_none(tmp_path):
    start = FromCheckpoint("musicgen-decoder", tmp_path)
    wrapper = start.wrapper()
    module = wrapper.load_for_training().model
    decoder = module.decoder
    assert decoder.config.vocab_size == SIZE + 1 and decoder.config.pad_token_id == SIZE + 1
    from transformers import MusicgenForCausalLM

    before = MusicgenForCausalLM.from_pretrained(start.path)
    for book in range(BOOKS):
        old = before.model.decoder.embed_tokens[book].weight
        new = decoder.model.decoder.embed_tokens[book].weight
        assert torch.equal(new[:SIZE], old[:SIZE]) and torch.equal(new[SIZE + 1], old[SIZE])
        assert torch.equal(decoder.lm_heads[book].weight[:SIZE], before.lm_heads[book].weight)


# -- low-rank adapters -------------------------------------------------------------------------


def test_adapters_train_with_what_is_new_and_are_merged_on_export(start, tmp_path):
    wrapper = start.wrapper(lora={"rank": 2})
    adapter = adapter_of(wrapper)
    trained = {name for name, p in adapter.module.named_parameters() if p.requires_grad}
    low_rank = {name for name in trained if ".lora_" in name}
    new = wrapper.network.new_parameters(wrapper.model)
    in_full = {name for name, p in adapter.module.named_parameters() if any(p is n for n in new)}
    assert low_rank and in_full and trained == low_rank | in_full
    before = {name: p.detach().clone() for name, p in adapter.module.named_parameters()}
    losses = train(adapter, [batch_of(start, wrapper)] * 8, rate=0.1)
    assert losses[-1] < losses[0]
    moved = {n for n, p in adapter.module.named_parameters() if not torch.equal(p, before[n])}
    assert moved <= trained and low_rank & moved
    wrapper.save_pretrained(tmp_path)
    merged = CodecLM.from_pretrained(tmp_path, model_type=start.model_type).load()
    assert not any(".lora_" in name for name, _ in merged.model.named_parameters())
    batch = batch_of(start, wrapper, 2)
    adapter.eval_mode()
    with torch.no_grad():
        asked, found = (w.network.ask(w.model, batch) for w in (wrapper, merged))
    torch.testing.assert_close(found.heads[0].hidden, asked.heads[0].hidden, rtol=1e-4, atol=1e-5)


# -- plain transformers ------------------------------------------------------------------------


def test_the_export_of_a_causal_language_model_is_plain(tmp_path):
    from transformers import AutoModelForCausalLM

    start = FromCheckpoint("llama", tmp_path / "checkpoint")
    wrapper = start.wrapper()
    adapter = adapter_of(wrapper)
    batch = batch_of(start, wrapper)
    train(adapter, [batch] * 2)
    assert wrapper.export_native(tmp_path / "out")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "transformers").eval()
    adapter.eval_mode()
    ids = batch["input_ids"][:1, : int((batch["segments"][0] > 0).sum())]
    with torch.no_grad():
        expected = wrapper.model(input_ids=ids).logits
        assert torch.equal(plain(input_ids=ids).logits, expected)
        heads = wrapper.network.ask(wrapper.model, batch).heads[0]
    ours = (heads.hidden @ heads.weight[0].T).reshape(len(batch["labels"]), -1, plain.vocab_size)
    torch.testing.assert_close(ours[:1, : ids.shape[1]], expected, rtol=1e-4, atol=1e-5)


def test_the_export_of_a_delayed_decoder_is_plain(tmp_path):
    from transformers import MusicgenForCausalLM, T5EncoderModel

    case = DelayCase()
    wrapper = case.wrapper()
    adapter = adapter_of(wrapper)
    batch = case.collate(draw_items(case, 2, 1))
    train(adapter, [batch] * 2)
    assert wrapper.export_native(tmp_path)
    decoder = MusicgenForCausalLM.from_pretrained(tmp_path / "decoder").eval()
    text = T5EncoderModel.from_pretrained(tmp_path / "text_encoder").eval()
    adapter.eval_mode()
    with torch.no_grad():
        states = text(batch["prompt_ids"], attention_mask=batch["prompt_mask"]).last_hidden_state
        logits = decoder(
            input_ids=batch["codes"].reshape(-1, batch["codes"].shape[2]),
            encoder_hidden_states=states,
            encoder_attention_mask=batch["prompt_mask"],
        ).logits.reshape(2, BOOKS, -1, SIZE + 1)
        heads = wrapper.network.ask(wrapper.model, batch).heads[0]
    ours = torch.einsum("nh,kvh->knv", heads.hidden, heads.weight)
    ours = ours.reshape(BOOKS, 2, -1, SIZE + 1).transpose(0, 1)
    torch.testing.assert_close(ours, logits, rtol=1e-5, atol=1e-6)


def test_the_export_of_a_depth_decoder_is_plain(tmp_path):
    from transformers import CsmForConditionalGeneration

    case = DepthCase()
    wrapper = case.wrapper()
    adapter = adapter_of(wrapper)
    item = draw_items(case, 1, 1)[0]
    batch = case.collate([item])
    train(adapter, [batch] * 2)
    assert wrapper.export_native(tmp_path)
    plain = CsmForConditionalGeneration.from_pretrained(tmp_path / "transformers").eval()
    adapter.eval_mode()
    with torch.no_grad():
        embedded = wrapper.network._embedded(wrapper.model, batch)
        labels = torch.full((*batch["labels"].shape, BOOKS), -100)
        asked = torch.cat([item.codes.T, torch.full((1, BOOKS), SIZE)])
        labels[0, len(item.prompt) :] = asked[:-1]  # the class shifts them itself
        output = plain(inputs_embeds=embedded, labels=labels)
        first, depth = wrapper.network.ask(wrapper.model, batch).heads
    ours = first.hidden @ first.weight[0].T
    torch.testing.assert_close(ours, output.logits[0], rtol=1e-4, atol=1e-5)
    rows = depth.hidden.reshape(-1, BOOKS - 1, depth.hidden.shape[1])
    logits = torch.einsum("nkh,kvh->nkv", rows, depth.weight)
    torch.testing.assert_close(logits[:-1], output.depth_decoder_logits, rtol=1e-4, atol=1e-5)


# -- the codec -----------------------------------------------------------------------------------


def test_the_codec_stays_apart_from_training(start, tmp_path):
    """Nothing of it is in the graph or in a file, those that checkpoints bring along included."""
    codec = start.case.codec
    before = codec.codebooks.clone()
    wrapper = start.wrapper()
    adapter = adapter_of(wrapper)
    train(adapter, [batch_of(start, wrapper)] * 2)
    assert torch.equal(codec.codebooks, before) and codec.codebooks.grad is None
    names = [name for name, _ in adapter.module.named_parameters()]
    assert not [n for n in names if "codec_model" in n or "audio_encoder" in n]
    wrapper.save_pretrained(tmp_path)
    from safetensors import safe_open

    for path in tmp_path.rglob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found = list(file.keys())
        assert found and not [n for n in found if "codec_model" in n or n == "codebooks"]


def test_a_checkpoint_that_does_not_fit_the_codec_is_refused(tmp_path):
    case = DelayCase()
    _, config_class = NETWORKS[case.model_type]
    path = musicgen_decoder(tmp_path, 3, SIZE)
    config = config_class.model_validate({"codec": {"path": case.codec.source}, "path": str(path)})
    wrapper = CodecLM.from_config(
        config, CharacterPrompts.build(["abcd"]), case.codec, model_type=case.model_type
    )
    with pytest.raises(ConfigurationError, match="has 3 codebooks, and the codec 2"):
        wrapper.load_for_training()

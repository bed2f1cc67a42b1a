"""Speaking: validity of codes, ends, guidance, caches, seeds, and whose codec it is."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from codec_lm_steps import adapter_of, run, train

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import ConfigurationError, DataError
from voicehub.testing.samples import draw_items
from voicehub_codec_lm.codecs import CorpusCodec
from voicehub_codec_lm.conformance import DelayCase, DepthCase, FlatCase, tone_codec
from voicehub_codec_lm.model import CodecLM
from voicehub_codec_lm.sampling.settings import SamplingSettings
from voicehub_codec_lm.text import CharacterPrompts

BOOKS, SIZE = 2, 8


@pytest.fixture(scope="module")
def trained():
    """An adapter of each layout that has learnt a little, with its case."""
    made = {}
    for case_class in (FlatCase, DelayCase, DepthCase):
        case = case_class()
        adapter = adapter_of(case.wrapper())
        optimizer = torch.optim.AdamW(adapter.module.parameters(), lr=5e-3)
        for seed in range(40):
            optimizer.zero_grad()
            run(adapter, case.collate(draw_items(case, 8, seed % 5))).loss.backward()
            optimizer.step()
        made[case.model_type] = (case, adapter.model)
    return made


@pytest.fixture(params=["codec-causal-lm", "musicgen", "csm"])
def speaker(request, trained):
    return trained[request.param][1]


def codes_of(wrapper, seed=0, letters="abc", **settings):
    prompt = wrapper.prompts.require(letters, None, "here")
    return wrapper.speak(prompt, SamplingSettings(**settings), seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_codes_are_codes_of_the_codec(speaker, seed):
    codes = codes_of(speaker, seed, max_seconds=0.5)
    assert codes.dtype == torch.int64 and codes.shape[0] == BOOKS
    assert 1 <= codes.shape[1] <= 0.5 * 4000 / 64
    assert int(codes.min()) >= 0 and int(codes.max()) < SIZE


def test_equal_seeds_speak_alike_and_others_differ(speaker):
    first, again, other = (codes_of(speaker, seed, max_seconds=0.4) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_speech_ends_by_itself_and_later_for_more_letters(speaker):
    short, long = (
        [codes_of(speaker, seed, letters, max_seconds=2.0).shape[1] for seed in range(8)]
        for letters in ("ab", "abcdab")
    )
    assert max(*short, *long) < 2.0 * 4000 / 64  # not the hard stop
    assert sum(short) < sum(long)


def test_the_hard_stop_holds(speaker):
    assert codes_of(speaker, 0, "abcdab", max_seconds=3 * 64 / 4000).shape[1] <= 3


def test_the_cache_changes_nothing(trained):
    """Greedy codes, step by step with a cache, are those of one pass over the whole sequence."""
    for case, wrapper in trained.values():
        prompt = wrapper.prompts.require("abcd", None, "here")
        codes = wrapper.speak(prompt, SamplingSettings(temperature=0, max_seconds=0.2))
        item = draw_items(case, 1, 1)[0]._replace(prompt=prompt, codes=codes)
        with torch.no_grad():
            heads = wrapper.network.ask(wrapper.model.eval(), case.collate([item])).heads
        for group in heads:
            for head, matrix in enumerate(group.weight):
                labels = group.labels[:, head]
                asked = labels >= 0
                logits = (group.hidden @ matrix.T)[asked]
                own = logits.gather(1, labels[asked][:, None])
                better = (logits > own + 1e-4).sum(1)
                # Codes of other codebooks, and ends that are not due, were never to choose from.
                share = float((better == 0).float().mean())
                assert share > 0.8, (case.model_type, group.names[head], share)


# -- guidance ------------------------------------------------------------------------------------


def test_guidance_moves_codes_where_the_layout_has_it(trained):
    wrapper = trained["musicgen"][1]
    plain, guided = (
        codes_of(wrapper, 3, "abcd", guidance_scale=scale, max_seconds=0.3) for scale in (1.0, 3.0)
    )
    assert plain.shape != guided.shape or not torch.equal(plain, guided)


def test_guidance_is_refused_where_there_is_none(trained):
    with pytest.raises(ConfigurationError, match="nothing to guide away from"):
        trained["csm"][1].synthesize(["ab"], guidance_scale=2.0)


def test_the_empty_condition_does_not_depend_on_the_text(trained):
    _, wrapper = trained["musicgen"]
    module = wrapper.model.eval()
    keep = torch.zeros(2)
    ids = torch.tensor([[1, 2, 3], [4, 4, 1]])
    with torch.no_grad():
        condition = module.condition(ids, torch.ones_like(ids), keep)
    assert not condition.any()


# -- texts and options -----------------------------------------------------------------------------


def test_synthesis_is_sound_of_the_codec(speaker):
    (made,) = speaker.synthesize(["abc"], max_seconds=0.3, seed=1)
    assert made.sampling_rate == 4000 and made.waveform.dtype == np.float32
    assert made.text == "abc" and np.abs(made.waveform).max() <= 1.0


def test_wrong_requests_are_named(speaker):
    with pytest.raises(
        ConfigurationError, match="unknown synthesis option 'temprature'.*temperature"
    ):
        speaker.synthesize(["ab"], temprature=1.0)
    with pytest.raises(ConfigurationError, match="top_p"):
        speaker.synthesize(["ab"], top_p=2.0)
    with pytest.raises(ConfigurationError, match="knows no speakers"):
        speaker.synthesize(["ab"], speaker="george")
    with pytest.raises(ConfigurationError, match="no speaking_rate"):
        speaker.synthesize(["ab"], speaking_rate=2.0)
    with pytest.raises(DataError, match="no symbol of 'xyz' has a token"):
        speaker.synthesize(["xyz"])


def test_speakers_are_part_of_the_prompt():
    prompts = CharacterPrompts.build(["ab"], ["george", "theo"])
    assert prompts.require("ab", "george", "x") != prompts.require("ab", "theo", "x")
    assert prompts.require("ab", 1, "x") == prompts.require("ab", "theo", "x")
    with pytest.raises(ConfigurationError, match="2 speakers; name one of george, theo"):
        prompts.require("ab", None, "x")
    with pytest.raises(ConfigurationError, match="no speaker 'georg'.*george"):
        prompts.require("ab", "georg", "x")


# -- the codec of an artifact ----------------------------------------------------------------------


@pytest.fixture
def artifact(tmp_path):
    case = DelayCase()
    wrapper = case.wrapper()
    adapter = adapter_of(wrapper)
    train(adapter, [case.collate(draw_items(case, 2, 1))])
    wrapper.save_pretrained(tmp_path / "artifact")
    return case, tmp_path


def test_an_artifact_finds_its_codec_and_speaks_the_same(artifact):
    case, folder = artifact
    again = CodecLM.from_pretrained(folder / "artifact", model_type="musicgen")
    assert again.codec.identity() == case.codec.identity()
    (made,) = again.synthesize(["ab"], max_seconds=0.2)
    assert len(made.waveform)


def test_another_codec_is_refused(artifact):
    _, folder = artifact
    tone_codec(seed=1).save(folder / "other")
    other = CodecLM.from_pretrained(
        folder / "artifact", model_type="musicgen", codec=folder / "other"
    )
    with pytest.raises(ConfigurationError, match="give the codec that the model was trained with"):
        other.synthesize(["ab"])


def test_a_moved_codec_can_be_named(artifact):
    case, folder = artifact
    shutil.copytree(case.codec.source, folder / "moved")
    shutil.rmtree(case.codec.source)
    lost = CodecLM.from_pretrained(folder / "artifact", model_type="musicgen")
    with pytest.raises(ConfigurationError, match="codec=PATH"):
        lost.synthesize(["ab"])
    found = CodecLM.from_pretrained(
        folder / "artifact", model_type="musicgen", codec=folder / "moved"
    )
    assert (
        found.codec.identity()["sha256"] == CorpusCodec.load(folder / "moved").identity()["sha256"]
    )


def test_init_from_another_codec_is_refused(artifact):
    from voicehub.models.initial import read_initial_weights

    _, folder = artifact
    other = DelayCase()
    other._codec = tone_codec(seed=1)
    other._codec.save(other.directory / "codec")
    other._codec = CorpusCodec.load(other.directory / "codec")
    wrapper = other.wrapper()
    wrapper.start_from(read_initial_weights(folder / "artifact", model_type="musicgen"))
    with pytest.raises(ConfigurationError, match="Train with the same codec"):
        wrapper.load_for_training()


def test_something_else_than_an_artifact_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="no artifact of ours"):
        CodecLM.from_pretrained(tmp_path, model_type="musicgen").load()


def test_draws_use_one_number_a_row():
    from voicehub_codec_lm.sampling.draw import draw

    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    generator = torch_generator("test", 0)
    draw(logits, SamplingSettings(temperature=0), generator)
    same = torch_generator("test", 0)
    torch.rand(3, generator=same)
    assert torch.equal(torch.rand(1, generator=generator), torch.rand(1, generator=same))

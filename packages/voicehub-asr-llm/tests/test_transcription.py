"""Transcribing: batches, limits, pieces of long recordings, options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub_asr_llm.config import GenerationConfig
from voicehub_asr_llm.transcribing import Limits, cut_at_quiet_places
from voicehub_asr_llm.transcribing.generation import _cut, repeated


@pytest.fixture(params=["llama", "qwen3_5_text", "gemma3_text"])
def model(request, model_of):
    return model_of("granite_speech5_ctc", request.param)


def test_a_batch_gives_what_each_gives_alone(model, waves):
    clips = [waves(n, n) for n in (5000, 21000, 9000)]
    together = [row.text for row in model.transcribe(clips, batch_size=3, max_new_tokens=20)]
    alone = [model.transcribe([clip], max_new_tokens=20)[0].text for clip in clips]
    assert together == alone
    # The random Gemma has nothing to say.
    assert len(set(together)) > 1 or "gemma" in str(model.config.decoder.path)


def test_modes_and_weights_are_left_alone(model_of, waves):
    model = model_of()
    model.network.train()
    before = [module.training for module in model.network.modules()]
    model.transcribe([waves(6000)], max_new_tokens=2)
    assert [module.training for module in model.network.modules()] == before
    assert not any(p.is_inference() for p in model.network.parameters())


def test_greedy_is_the_argmax_step_by_step(model_of, waves):
    model = model_of()
    network, chat = model.network, model.chat
    wave = waves(8000)
    inputs = model._conversations([wave], "plain")[0][None]
    limit = Limits.of(model.config.generation, [0.5]).tokens[0]
    ids: list[int] = []
    with torch.no_grad():
        embed = network.decoder.get_input_embeddings()
        while len(ids) < limit and (not ids or ids[-1] != chat.end_id):
            logits = network.decoder(inputs_embeds=inputs).logits[0, -1]
            ids.append(int(logits.argmax()))
            inputs = torch.cat([inputs, embed(torch.tensor([[ids[-1]]]))], 1)
            if repeated(ids, model.config.generation.max_repeats):
                break
    written = _cut(ids, limit, model.config.generation.max_repeats, chat.end_id)
    found = model.hypotheses([wave])[0]
    assert found.text == chat.decode(written.ids)
    assert found.finished == written.finished


def test_length_is_limited_by_seconds_and_repetition_by_phrases(model_of, waves):
    model = model_of()
    short = model.transcribe([waves(4000)], tokens_per_second=4.0, max_repeats=99)[0].text
    assert len(short) <= 16 + 1
    assert len(model.transcribe([waves(4000)], max_new_tokens=3)[0].text) <= 3
    assert Limits.of(GenerationConfig(max_new_tokens=40), [0.1, 1.0, 60.0]).tokens == (18, 40, 40)


@pytest.mark.parametrize(
    ("ids", "times", "length"),
    [
        ([1, 2, 3, 3, 3], 3, 1),
        ([9, 1, 2, 1, 2, 1, 2], 3, 2),
        ([1, 2, 1, 2, 1], 3, None),
        ([5, 5], 3, None),
        ([], 2, None),
    ],
)
def test_repeated_phrases_are_found(ids, times, length):
    assert repeated(ids, times) == length


def test_what_repeats_is_kept_once():
    assert _cut([7, 1, 2, 1, 2, 1, 2, 0, 0], 99, 3, 9) == ([7, 1, 2], False)
    assert _cut([7, 8, 9, 0], 99, 3, 9) == ([7, 8], True)
    assert _cut([7, 8, 6], 2, 3, 9) == ([7, 8], False)


def test_beams_and_penalties_run(model_of, waves):
    model = model_of()
    clips = [waves(5000, 1), waves(7000, 2)]
    assert len(model.transcribe(clips, beam_size=2, max_new_tokens=6)) == 2
    text = model.transcribe(clips[:1], no_repeat_ngram_size=1, max_new_tokens=12)[0].text
    assert len(set(text)) == len(text)


def test_prompts_differ(model_of, waves):
    model = model_of()
    clip = waves(9000)
    plain, punctuated = (model._conversations([clip], kind)[0] for kind in ("plain", "punctuated"))
    assert len(punctuated) > len(plain)
    assert model.prompt_kind == "plain"
    model.punctuated = True
    assert model.prompt_kind == "punctuated"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"timestamps": True}, "no word timings"),
        ({"max_tokens": 3}, "unknown transcription option 'max_tokens'. Did you mean"),
        ({"max_repeats": 1}, "max_repeats"),
        ({"prompt": "loud"}, "'plain' or 'punctuated'"),
    ],
)
def test_options_that_cannot_be_are_refused(model_of, waves, options, why):
    with pytest.raises(ConfigurationError, match=why):
        model_of(load=False).transcribe([waves(4000)], **options)


def test_audio_that_cannot_be_is_refused(model_of):
    model = model_of(load=False)
    for bad in (np.zeros((2, 9), np.float32), np.array([np.nan], np.float32)):
        with pytest.raises(DataError, match="expected finite mono samples"):
            model.transcribe([bad])


@settings(max_examples=40, deadline=None)
@given(samples=st.integers(1, 9000), seconds=st.floats(0.6, 3.0), seed=st.integers(0, 9))
def test_pieces_are_the_recording_and_short_enough(samples, seconds, seed):
    audio = np.random.default_rng(seed).standard_normal(samples).astype(np.float32)
    pieces = cut_at_quiet_places(audio, 1000, seconds)
    assert np.array_equal(np.concatenate(pieces), audio)
    assert all(0 < len(piece) <= int(seconds * 1000) for piece in pieces)


def test_a_cut_lies_in_the_pause():
    audio = np.ones(3000, dtype=np.float32)
    audio[820:900] = 0.0
    first = cut_at_quiet_places(audio, 1000, 1.0)[0]
    assert 845 <= len(first) <= 875


def test_long_recordings_are_transcribed_in_pieces(model_of, waves):
    model = model_of()
    long = waves(40000)
    pieces = cut_at_quiet_places(long, 16000, 1.0)
    assert len(pieces) > 2
    texts = [row.text for row in model.transcribe(pieces, max_new_tokens=12)]
    joined = model.transcribe([long], max_seconds=1.0, max_new_tokens=12)[0]
    assert joined.text == " ".join(text for text in texts if text)
    assert joined.duration == pytest.approx(2.5)


def test_whisper_is_given_what_it_sees(model_of, waves):
    model = model_of("whisper")
    assert model.front_end.maximum_samples == 32000
    written = model.transcribe([waves(40000)], max_new_tokens=4)[0]
    assert written.duration == pytest.approx(2.5)

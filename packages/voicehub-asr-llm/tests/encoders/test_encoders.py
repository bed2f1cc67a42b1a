"""Every encoder: one length formula, frames that do not depend on batch mates, refusals by name."""

from __future__ import annotations

import json

import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError, DataError
from voicehub_asr_llm.config import EncoderConfig
from voicehub_asr_llm.data import AUDIO, AsrLlmCollator
from voicehub_asr_llm.encoders import describe_encoder

KINDS = [
    "wav2vec2", "hubert", "wavlm", "wav2vec2-bert", "whisper", "parakeet_ctc",
    "granite_speech5_ctc", "recogniser",
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def source(request, encoder):
    return describe_encoder(EncoderConfig(path=str(encoder(request.param))))


@pytest.fixture(scope="module")
def loaded(source):
    return source.load()


def run(loaded, front_end, items):
    batch = front_end.batch(items)
    rows = [item.valid for item in items]
    with torch.no_grad():
        return loaded(batch["audio"], batch["audio_lengths"], rows)


def test_frames_and_placeholders_for_two_hundred_lengths(source, loaded, waves, model_of, items_of):
    front_end, stride = source.front_end, 2
    shortest = front_end.minimum_samples(stride)
    model = model_of(load=False)
    (item,) = items_of(model, "ab")
    collator = AsrLlmCollator(front_end, model.chat, stride)
    noise = waves(shortest + 200 * 23)
    #: Rows to frames of a forward: how many there are is a matter of shapes alone.
    given: dict[int, int] = {}
    for samples in range(shortest, shortest + 200 * 23, 23):
        prepared = front_end.prepare(noise[:samples])
        if prepared.valid not in given:
            states = run(loaded, front_end, [prepared])
            given[prepared.valid] = states.shape[1]
            assert states.shape == (1, states.shape[1], source.hidden_size)
        produced = given[prepared.valid]
        assert produced == prepared.frames == front_end.frames(samples)
        assert produced == loaded.output_frames(prepared.valid)
        batch = collator([item._replace(prepared=prepared)])
        assert int((batch["input_ids"] == AUDIO).sum()) == produced // stride
        assert batch["placeholders"] == [produced // stride]


def test_frames_beside_others_are_those_of_an_utterance_alone(source, loaded, waves):
    require_no_batch_mates(source.front_end, loaded, waves)


def test_an_encoder_that_normalises_over_the_padding_runs_lengths_apart(encoder, waves):
    source = describe_encoder(EncoderConfig(path=str(encoder("group-norm"))))
    loaded = source.load()
    assert loaded.runs_apart
    require_no_batch_mates(source.front_end, loaded, waves)
    loaded.runs_apart = False
    with pytest.raises(AssertionError):
        require_no_batch_mates(source.front_end, loaded, waves)


def require_no_batch_mates(front_end, loaded, waves):
    shortest = front_end.minimum_samples(2)
    items = [front_end.prepare(waves(shortest + n, n)) for n in (0, 700, 4100, 9000)]
    together = run(loaded, front_end, items)
    for place, item in enumerate(items):
        alone = run(loaded, front_end, [item])
        assert alone.isfinite().all()
        gap = (together[place, : item.frames] - alone[0]).abs().max()
        assert gap < 1e-4


def test_the_shortest_audio_of_so_many_frames(source):
    front_end = source.front_end
    for frames in (1, 2, 5):
        samples = front_end.minimum_samples(frames)
        assert front_end.frames(samples) >= frames
        shorter = front_end.frames(samples - 1)
        assert shorter < frames or samples == front_end.minimum_samples(1)


def test_identity_and_layers(source, loaded):
    files = source.identity()["files"]
    assert any(name.endswith(".safetensors") for name in files)
    assert len(loaded.layers()) >= 2
    names = {id(p) for part in (*loaded.layers(), *loaded.tail()) for p in part.parameters()}
    assert names <= {id(p) for p in loaded.parameters()}


def test_another_model_is_refused_by_name(decoder, tmp_path):
    with pytest.raises(ConfigurationError, match="'llama', which is no speech encoder.*whisper"):
        describe_encoder(EncoderConfig(path=str(decoder("llama"))))
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        describe_encoder(EncoderConfig(path=str(tmp_path)))


def test_an_artifact_that_gives_no_encoder_is_refused(tmp_path):
    parts = {"encoder": {"path": "e"}, "decoder": {"path": "d"}}
    model = {"config": parts, "punctuated": False, "metric_normalizer": "basic"}
    document = {"voicehub_format": 1, "model_type": "asr-llm", "family": "asr-llm", "model": model}
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="holds a 'asr-llm', which gives no encoder"):
        describe_encoder(EncoderConfig(path=str(tmp_path)))


def test_whisper_refuses_audio_that_it_would_cut(encoder, waves):
    front_end = describe_encoder(EncoderConfig(path=str(encoder("whisper")))).front_end
    with pytest.raises(DataError, match="would cut the rest off"):
        front_end.prepare(waves(2 * 16000 + 1))


def test_a_wrong_formula_is_caught_and_the_sample_named(model_of, items_of, collate):
    model = model_of()
    batch = collate(model, items_of(model, "ab", "c"))
    batch["placeholders"] = [batch["placeholders"][0], batch["placeholders"][1] + 1]
    with pytest.raises(DataError, match="sample 'second': the projector makes"):
        model.network.hear(batch, ["first", "second"])
    batch["placeholders"][1] -= 1
    batch["frame_counts"] = [batch["frame_counts"][0] + 1, batch["frame_counts"][1]]
    with pytest.raises(DataError, match="rows of sample 'first'; its length formula says"):
        model.network.hear(batch, ["first", "second"])

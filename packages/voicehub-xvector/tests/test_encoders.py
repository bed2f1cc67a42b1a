"""Pretrained encoders: lengths, padding, layers that are not needed, long recordings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voicehub.errors import CheckpointError, ConfigurationError
from voicehub_hf.features import feature_lengths
from voicehub_hf.speech_encoders import load_speech_encoder, read_encoder_parts
from voicehub_hf.truncation import drop_top_layers, layer_savings
from voicehub_xvector.chunks import plan_pieces
from voicehub_xvector.config import EncoderModelConfig
from voicehub_xvector.conformance import voice
from voicehub_xvector.encoder_model import savings_text
from voicehub_xvector.front_ends.encoder import EncoderFrontEnd
from voicehub_xvector.model import EncoderXVector

KINDS = ("wav2vec2", "hubert", "wavlm", "whisper", "wav2vec2-bert")
HEAD = {
    "kind": "resnet1d", "in_channels": 6, "channels": [6], "repeats": [1], "kernels": [3],
    "strides": [1], "dilations": [1], "embedding_size": 5,
}  # fmt: skip


def build(directory, kind, classes=("ann", "bob"), **settings):
    config = EncoderModelConfig.model_validate(
        {"path": str(directory), "train_mode": "full", "head": HEAD, **settings}
    )
    torch.manual_seed(0)
    return EncoderXVector.from_config(config, classes, model_type=f"xvector-{kind}").load()


def noise(samples, seed=0):
    return np.random.default_rng(seed).standard_normal(samples).astype(np.float32) * 0.1


def states_of(model, waves):
    front_end = model.front_end
    batch = front_end.batch([front_end.prepare(wave) for wave in waves])
    with torch.no_grad():
        return model.network.hidden_states(batch[front_end.input_name], batch["lengths"])


@pytest.mark.parametrize("kind", KINDS)
def test_predicted_frames_are_produced(kind, encoder_checkpoint):
    model = build(encoder_checkpoint(kind), kind)
    front_end: EncoderFrontEnd = model.front_end
    generator = np.random.default_rng(1)
    lengths = [front_end.minimum_samples, *generator.integers(front_end.minimum_samples, 4000, 199)]
    for samples in map(int, lengths):
        prepared = front_end.prepare(noise(samples))
        if kind == "whisper":  # its output is always as long; the convolutions tell what is valid
            rows = prepared.rows[: prepared.valid].T[None]
            encoder = model.network.encoder
            with torch.no_grad():
                produced = encoder.conv2(encoder.conv1(rows)).shape[-1]
        elif kind == "wav2vec2-bert":
            states, _ = states_of(model, [noise(samples)])
            produced = states[0].shape[1]
        else:  # what follows keeps the number of frames
            with torch.no_grad():
                produced = model.network.encoder.feature_extractor(prepared.rows[None]).shape[-1]
        assert front_end.frames(samples) == front_end.fused_frames(prepared.valid) == produced
        assert prepared.valid == feature_lengths(front_end.extractor, samples)


def test_whisper_frames_follow_the_published_formula(encoder_checkpoint):
    from transformers import WhisperConfig, WhisperFeatureExtractor

    from voicehub_hf.lengths import output_lengths

    extractor = WhisperFeatureExtractor()
    samples = np.array([160, 161, 16000, 479_999, 480_000, 480_001, 1_000_000])
    expected = [((min(n, 480_000) // 160) + 1) // 2 for n in samples.tolist()]
    got = output_lengths(WhisperConfig(), feature_lengths(extractor, samples))
    assert got.tolist() == expected
    assert output_lengths(WhisperConfig(), feature_lengths(extractor, 16000)) == 50


@pytest.mark.parametrize("kind", KINDS)
def test_padded_batch_equals_single_utterances(kind, encoder_checkpoint):
    model = build(encoder_checkpoint(kind), kind)
    waves = [noise(6000, 1), noise(9000, 2), noise(7300, 3)]
    together, frames = states_of(model, waves)
    for i, wave in enumerate(waves):
        alone, own = states_of(model, [wave])
        assert int(frames[i]) == int(own[0])
        for batch_state, state in zip(together, alone, strict=True):
            gap = (batch_state[i, : int(own[0])] - state[0, : int(own[0])]).abs().max()
            assert gap < 1e-4
    singles = torch.cat([model.embed([wave], 16000) for wave in waves])
    assert (model.embed(waves, 16000) - singles).abs().max() < 1e-4


def test_group_norm_encoders_run_apart(encoder_checkpoint):
    directory = encoder_checkpoint(
        "wav2vec2", feat_extract_norm="group", do_stable_layer_norm=False, conv_bias=False
    )
    model = build(directory, "wav2vec2")
    assert model.network.runs_apart
    waves = [noise(6000, 1), noise(9000, 2)]
    singles = torch.cat([model.embed([wave], 16000) for wave in waves])
    assert (model.embed(waves, 16000) - singles).abs().max() < 1e-5
    careless = build(directory, "wav2vec2", exact_padding=False)
    assert (careless.embed(waves, 16000) - singles).abs().max() > 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_no_fused_state_needs_are_dropped(kind, encoder_checkpoint, tmp_path):
    directory = encoder_checkpoint(kind)
    whole = build(directory, kind)
    cut = build(directory, kind, fuser={"kind": "weighted-avg", "start": 0, "stop": 1})
    waves = [noise(6000, 1)]
    states, _ = states_of(whole, waves)
    kept, _ = states_of(cut, waves)
    assert len(states) == 3 and len(kept) == 2
    for state, same in zip(states, kept, strict=False):
        torch.testing.assert_close(state, same)
    encoder = load_speech_encoder(directory, model_type=kind)
    savings = layer_savings(encoder, whole.parts.encoder)
    assert [row.stop for row in savings] == [2, 1, 0]
    total = sum(p.numel() for p in encoder.parameters())
    drop_top_layers(encoder, whole.parts.encoder, 1)
    left = sum(p.numel() for p in encoder.parameters())
    norm = 0 if kind == "wav2vec2-bert" else 2 * encoder.config.hidden_size
    assert savings[1].parameters - left == norm
    assert savings[1].share_saved == pytest.approx((total - savings[1].parameters) / total)
    text = savings_text(cut.savings, 1)
    assert text.startswith(f"Encoder: 1 of 2 layers, {savings[1].parameters:,} parameters.")
    assert f"1: {savings[1].share_saved:.0%}, 0: {savings[2].share_saved:.0%}" in text
    cut.save_pretrained(tmp_path)
    again = EncoderXVector(tmp_path, model_type=cut.model_type).load()
    torch.testing.assert_close(again.embed(waves, 16000), cut.embed(waves, 16000))


def test_last_is_what_leaves_the_encoder(encoder_checkpoint):
    model = build(encoder_checkpoint("wavlm"), "wavlm", fuser={"kind": "last"})
    states, _ = states_of(model, [noise(6000)])
    prepared = model.front_end.prepare(noise(6000))
    with torch.no_grad():
        out = model.network.encoder(input_values=prepared.rows[None]).last_hidden_state
    torch.testing.assert_close(states[-1], out)


def test_a_missing_layer_is_named(encoder_checkpoint):
    with pytest.raises(ConfigurationError, match="Hidden state 5"):
        build(encoder_checkpoint("hubert"), "hubert", fuser={"stop": 5})


def test_checkpoints_of_another_family_are_refused(encoder_checkpoint):
    with pytest.raises(ConfigurationError, match="'hubert', but 'wavlm' was asked"):
        build(encoder_checkpoint("hubert"), "wavlm")


def test_pickled_weights_are_refused(encoder_checkpoint, tmp_path):
    for path in encoder_checkpoint("hubert").iterdir():
        if path.suffix == ".json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickles"):
        load_speech_encoder(tmp_path, model_type="hubert")


def test_waveforms_are_normalised_alone_when_the_processor_says_so(encoder_checkpoint):
    parts = read_encoder_parts(encoder_checkpoint("wav2vec2"), model_type="wav2vec2")
    wave = noise(5000) * 3 + 0.5
    rows = EncoderFrontEnd(parts).prepare(wave).rows.numpy()
    assert parts.feature_extractor.do_normalize
    assert abs(rows.mean()) < 1e-4 and abs(rows.std() - 1) < 1e-3


def test_layer_drop_and_masking_of_the_model_are_off(encoder_checkpoint):
    model = build(encoder_checkpoint("wav2vec2", layerdrop=0.5), "wav2vec2")
    config = model.network.encoder.config
    assert config.layerdrop == 0.0 and config.apply_spec_augment is False


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2-bert", "whisper"])
def test_long_recordings_run_in_pieces(kind, encoder_checkpoint):
    wave = voice(5, 24_000)[1]
    pieces = {"chunk_seconds": 0.5, "context_seconds": 0.2}
    model = build(encoder_checkpoint(kind), kind, **pieces)
    whole = build(encoder_checkpoint(kind), kind)
    cut, expected = model.embed([wave], 16000)[0], whole.embed([wave], 16000)[0]
    assert torch.cosine_similarity(cut, expected, dim=0) > 0.98
    beside = model.embed([wave, noise(6000)], 16000)[0]
    assert (beside - cut).abs().max() < 1e-5


@pytest.mark.parametrize("samples", [1000, 1601, 5000, 9999, 16000])
@pytest.mark.parametrize("limit", [None, 1700])
def test_kept_frames_of_pieces_are_those_of_the_whole(samples, limit):
    hop, window = 20, 25
    frames = lambda n: max(0, (n - window) // hop + 1)  # noqa: E731
    kept = []
    for piece in plan_pieces(samples, hop=hop, piece=1000, context=200, limit=limit):
        assert 0 <= piece.start < piece.stop <= samples
        assert limit is None or piece.stop - piece.start <= limit
        count = frames(piece.stop - piece.start)
        stop = count if piece.keep is None else piece.skip + piece.keep
        assert stop <= count
        kept += [piece.start // hop + i for i in range(piece.skip, stop)]
    assert kept == list(range(frames(samples)))


def test_pieces_over_the_limit_are_refused():
    with pytest.raises(ConfigurationError, match="chunk_seconds and twice"):
        plan_pieces(9000, hop=20, piece=1000, context=400, limit=1500)


def test_a_stage_starts_from_merged_adapters(encoder_checkpoint, tmp_path):
    from voicehub.models.initial import read_initial_weights

    directory = encoder_checkpoint("hubert")
    waves = [voice(3, 8000)[1]]
    settings = {"train_mode": "hf-lora", "fuser": {"stop": 1}}
    first = build(directory, "hubert", **settings)
    first.model = None
    first.load_for_training()
    with torch.no_grad():
        for name, parameter in first.network.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.2)
    expected = first.embed(waves, 16000)
    first.save_pretrained(tmp_path)
    config = first.config.model_copy(update={"path": "gone"})
    second = EncoderXVector.from_config(
        config, ["bob", "eve"], model_type="xvector-hubert", init_from=tmp_path
    )
    second.start_from(read_initial_weights(tmp_path, model_type="xvector-hubert"))
    second.load_for_training()
    assert (second.embed(waves, 16000) - expected).abs().max() < 1e-5
    assert torch.equal(second.network.loss.weight[0], first.network.loss.weight[1])
    adapters = [n for n, p in second.network.named_parameters() if ".lora_" in n]
    assert len(adapters) == 4


def test_masks_hide_fused_features(encoder_checkpoint):
    from voicehub.data.keyed_random import SampleKey
    from voicehub_data.augment import SpecAugment
    from voicehub_xvector.data import XVectorCollator, XVectorItem

    model = build(encoder_checkpoint("whisper"), "whisper")
    items = [
        XVectorItem(f"{i}", model.front_end.prepare(noise(n)), 0, "ann", 0.4, SampleKey(0, 0, i, i))
        for i, n in enumerate((6000, 9000))
    ]
    masks = SpecAugment(2, 8, 0.5, 2, 8)
    batch = XVectorCollator(model.front_end, masks, model.fused_size)(items)
    batch.pop("labels"), batch.pop("batch_info")
    plain = {key: batch[key] for key in ("input_features", "lengths")}
    with torch.no_grad():
        fused, frames = model.network.fused(
            plain["input_features"], plain["lengths"], batch["time_mask"], batch["feature_mask"]
        )
        assert fused[batch["time_mask"]].abs().sum() == 0
        assert fused.shape[1] == int(frames.max()) == batch["time_mask"].shape[1]
        assert not torch.equal(model.network(**batch), model.network(**plain))


@pytest.mark.parametrize("kind", ["wavlm", "whisper"])
def test_the_exported_program_gives_equal_embeddings(kind, encoder_checkpoint, tmp_path):
    import json

    layers = {"encoder_layers": 1} if kind == "whisper" else {"num_hidden_layers": 1}
    model = build(encoder_checkpoint(kind, **layers), kind)
    assert model.export_native(tmp_path)
    program = torch.export.load(tmp_path / "embedder.pt2").module()
    name = json.loads((tmp_path / "embedder.json").read_text())["inputs"]["rows"]["name"]
    for waves in ([noise(6000, 1), noise(9000, 2), noise(7300, 3), noise(9000, 4)], [noise(5000)]):
        batch = model.front_end.batch([model.front_end.prepare(wave) for wave in waves])
        with torch.no_grad():
            got = program(batch[name], batch["lengths"])
        torch.testing.assert_close(got, model.embed(waves, 16000), rtol=1e-5, atol=1e-5)

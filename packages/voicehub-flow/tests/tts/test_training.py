"""The objective in a run: what the loss sees, what is measured, what a run ends with."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.context import TrainingContext
from voicehub.cli.app import run
from voicehub.errors import ConfigurationError, DataError
from voicehub.testing.samples import draw_items
from voicehub_flow.objective import velocity
from voicehub_flow.tts.conformance import LETTER_SECONDS, MEL, RATE, F5TTSCase, tiny_wrapper

CASE = F5TTSCase()


@pytest.fixture(scope="module")
def batch():
    return CASE.collate(draw_items(CASE, 6, 1))


@pytest.fixture
def adapter():
    made = AutoTrainingAdapter.from_model(tiny_wrapper())
    made.setup()
    return made


def output_of(adapter, batch, *, training=True, **changes):
    inputs = {key: value for key, value in batch.items() if key != "batch_info"} | changes
    phase = adapter.phases[0]
    if training:
        adapter.train_mode()
        context = TrainingContext(phase, inputs, 0, 0.0, True, batch["batch_info"])
        return adapter.execute_training_phase(context)
    adapter.eval_mode()
    context = TrainingContext(phase, inputs, None, None, False, batch["batch_info"])
    return adapter.execute_prediction_phase(context)


# -- the loss ----------------------------------------------------------------------------------


def test_the_loss_is_the_mean_over_the_frames_to_be_filled_in(adapter, batch, monkeypatch):
    made = torch.randn_like(batch["mel"]).requires_grad_()
    monkeypatch.setattr(adapter.module, "forward", lambda *a, **k: made)
    total, count = 0.0, 0
    target = batch["mel"] - batch["noise"]
    for row, frames in enumerate(batch["frame_lengths"].tolist()):
        for frame in range(frames):
            if batch["span_mask"][row, frame]:
                total += float(
                    (made[row, frame].detach() - target[row, frame]).double().square().sum()
                )
                count += MEL["n_mels"]
    found = output_of(adapter, batch)
    assert int(found.num_items) == count
    assert float(found.loss.detach()) == pytest.approx(total / count, rel=1e-5)


def test_an_oracle_has_no_loss(adapter, batch, monkeypatch):
    oracle = velocity(batch["noise"], batch["mel"]).requires_grad_()
    monkeypatch.setattr(adapter.module, "forward", lambda *a, **k: oracle)
    assert float(output_of(adapter, batch).loss.detach()) == 0.0


def test_context_is_shown_and_what_is_asked_is_not(adapter, batch, monkeypatch):
    seen = {}

    def look(noisy, context, time, *rest, **more):
        seen.update(noisy=noisy, context=context, **more)
        return torch.zeros_like(noisy).requires_grad_()

    monkeypatch.setattr(adapter.module, "forward", look)
    output_of(adapter, batch)
    span = batch["span_mask"]
    assert not bool(seen["context"][span].any())
    assert torch.equal(seen["context"][~span], batch["mel"][~span])
    time = batch["time"][:, None, None]
    mixed = (1 - time) * batch["noise"] + time * batch["mel"]
    torch.testing.assert_close(seen["noisy"], mixed)
    assert torch.equal(seen["drop_text"], batch["drop_text"]) and bool(batch["drop_audio"].any())


def test_nothing_is_dropped_in_evaluation(adapter, batch):
    yes = torch.ones(6, dtype=torch.bool)
    shown = output_of(adapter, batch, training=False)
    hidden = output_of(adapter, batch, training=False, drop_audio=yes, drop_text=yes)
    assert torch.equal(shown.loss, hidden.loss)
    dropped = output_of(adapter, batch, drop_audio=yes, drop_text=yes)
    assert not torch.equal(dropped.loss, output_of(adapter, batch).loss)


def test_evaluation_tells_the_loss_by_time(adapter, batch):
    found = output_of(adapter, batch, training=False)
    rows = adapter.evaluation_rows(found, batch, {})
    metrics = adapter.evaluation_metrics(rows)
    places = {f"loss_t{int(t * 25) / 25:.2f}" for t in batch["time"].tolist()}
    assert set(metrics) == places
    sums = sum(total for _, total, _ in rows) / sum(count for *_, count in rows)
    assert sums == pytest.approx(float(found.loss), rel=1e-5)
    assert adapter.evaluation_metrics([]) == {}


# -- speaking ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speaker():
    return tiny_wrapper().load()


def test_speech_lasts_as_long_as_its_text(speaker):
    short, long = speaker.synthesize(["ab", "abcdab"], speaker="anna")
    hop = MEL["hop_length"]
    for spoken, letters in ((short, 2), (long, 6)):
        frames = round(letters * LETTER_SECONDS * RATE / hop)
        assert len(spoken.waveform) == (frames - 1) * hop and spoken.sampling_rate == RATE
        assert spoken.waveform.dtype == np.float32 and np.abs(spoken.waveform).max() <= 1
    (fast,) = speaker.synthesize(["abcdab"], speaker="anna", speaking_rate=2.0)
    assert len(fast.waveform) == (round(3 * LETTER_SECONDS * RATE / hop) - 1) * hop
    assert not speaker.model.training


def test_equal_seeds_speak_alike(speaker):
    first, again, other, voice = (
        speaker.synthesize(["abc"], speaker=name, seed=seed)[0].waveform
        for name, seed in ((0, 1), (0, 1), (0, 2), (1, 1))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other) and not np.array_equal(first, voice)


@pytest.mark.parametrize(
    "options, error, said",
    [
        ({"speaker": "carl"}, ConfigurationError, "only anna, bert"),
        ({}, ConfigurationError, "name one of anna, bert"),
        ({"speaker": 0, "guidance": 2}, ConfigurationError, "Did you mean 'guidance_scale'"),
        ({"speaker": 0, "steps": 0}, ConfigurationError, "steps"),
        ({"speaker": 0, "language": "en"}, ConfigurationError, "no language"),
        ({"speaker": 0, "max_seconds": 0.1}, DataError, "over max_seconds"),
        (
            {"speaker": 0, "prompt_audio": np.zeros(8), "prompt_text": "a"},
            DataError,
            "prompt_audio",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(speaker, options, error, said):
    with pytest.raises(error, match=said):
        speaker.synthesize(["abcd"], **options)


def test_unknown_characters_are_told(speaker, caplog):
    speaker.synthesize(["ab!"], speaker=0)
    assert "'!'" in caplog.text
    with pytest.raises(DataError, match="no character"):
        speaker.synthesize(["!?"], speaker=0)


# -- whole runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["tiny-tts", "f5-finetune"])
def test_the_preset_works_from_training_to_loading(preset, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = run(["train", f"flow/{preset}", "--smoke", "--json"])
    captured = capfd.readouterr()
    assert code == 0, captured.err
    steps = json.loads(captured.out.splitlines()[-1])["smoke"]["steps"]
    names = [step["name"] for step in steps]
    assert names == ["train", "save", "resume", "eval", "ema", "sample", "export", "load"]
    exported = {step["name"]: step["detail"] for step in steps}["export"]
    assert ("native_export" in exported) == (preset == "f5-finetune")


def test_a_run_ends_with_the_command_that_uses_it(corpus, tmp_path, capsys):
    sizes = [f"model.architecture.{key}={value}" for key, value in _SIZES.items()]
    mel = [f"model.mel.{key}={value}" for key, value in MEL.items()]
    words = [
        "train", "flow/tiny-tts", f"data.train={corpus / 'train.jsonl'}", *sizes, *mel,
        f"training.output_dir={tmp_path / 'run'}", "training.max_steps=2",
        "training.warmup_steps=0", "model.mel.win_length=null", "model.vocoder.iterations=2",
        "model.synthesis.steps=2", "data.filters.min_duration=0.1",
    ]  # fmt: skip
    assert run(words) == 0
    shown = capsys.readouterr().out
    command = next(line for line in shown.splitlines() if "voicehub synthesize" in line)
    assert "final-model-ema" in command and "--speaker bert" in command
    said = command[command.index("synthesize") :].split()
    assert run([*said[: said.index("--out")], "--out", str(tmp_path / "speech.wav")]) == 0
    assert (tmp_path / "speech.wav").stat().st_size > 44


_SIZES = {
    "dim": 16,
    "depth": 1,
    "heads": 2,
    "text_dim": 8,
    "conv_layers": 1,
    "conv_kernel": 3,
    "conv_groups": 2,
}

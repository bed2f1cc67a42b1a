"""Through the command line: train, evaluate, speak, resume; what the run shows and measures."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.adapters.evaluation import EvaluationContext
from voicehub.cli.app import run
from voicehub.specs.registry import get_training_spec
from voicehub.specs.support import TrainingSupport
from voicehub.trainer.media import Audio, Image
from voicehub_vits import evaluation
from voicehub_vits.config import VitsEvalConfig
from voicehub_vits.conformance import ARCHITECTURE, VitsCase, tiny_config, tiny_wrapper
from voicehub_vits.evaluation import SampleTask, alignment_picture
from voicehub_vits.testing import ACOUSTIC

CASE = VitsCase()
ACOUSTIC_KEYS = [f"model.training_acoustic_config.{key}={value}" for key, value in ACOUSTIC.items()]


def test_the_spec_says_what_it_needs() -> None:
    spec = get_training_spec("vits")
    assert spec.support is TrainingSupport.CUSTOM and spec.has_training_recipe
    assert not spec.is_turnkey and spec.family_name == "vits"
    assert [phase.name for phase in spec.phases] == ["discriminator", "generator"]
    assert all(phase.optimizer_step_after_phase for phase in spec.phases)


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the preset, cut down to the tones, with an evaluation."""
    directory = tmp_path_factory.mktemp("cli") / "run"
    sizes = [f"model.architecture.{key}={value}" for key, value in ARCHITECTURE.items()]
    code = run(
        [
            "train",
            "vits/tiny",
            f"data.train={corpus / 'train.jsonl'}",
            f"data.eval={corpus / 'test.jsonl'}",
            f"training.output_dir={directory}",
            *[text.replace(" ", "") for text in sizes],
            *ACOUSTIC_KEYS,
            "model.discriminator.width=0.01",
            "data.batches.batch_size=3",
            "eval.samples=1",
            "eval.sentences=[abc]",
            "training.max_steps=3",
            "training.logging_steps=1",
            "training.eval_strategy=steps",
            "training.eval_steps=3",
            "training.save_strategy=steps",
            "training.save_steps=2",
        ]
    )
    assert code == 0
    return directory


def test_a_run_logs_terms_media_and_distances(trained: Path) -> None:
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    first = next(row for row in rows if "loss" in row)
    for name in ("discriminator/adversarial", "generator/mel", "generator/kl"):
        assert np.isfinite(first[f"loss/{name}"])
    assert "loss/generator/loss" not in first
    (evaluated,) = [row for row in rows if "eval_mel_cepstral_distance" in row]
    assert evaluated["eval_duration_error"] >= 0
    media = {
        path.relative_to(trained / "media").as_posix() for path in (trained / "media").rglob("*.*")
    }
    names = ("audio.wav", "recording.wav", "mel.png", "mel_of_recording.png", "alignment.png")
    assert {f"step-00000003/eval/t0/{name}" for name in names} <= media
    assert "step-00000003/eval/sentence-1/audio.wav" in media


def test_the_report_says_what_figures_mean(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    assert "What the figures mean" in page and "3.0 is undecided" in page
    assert "What decides: mel L1, mel cepstral distance, duration error." in page
    assert page.count("data:audio/wav;base64,") >= 3
    assert page.count("data:image/png;base64,") >= 3


def test_the_model_speaks_from_the_command_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waves = []
    for number in (1, 2):
        out = tmp_path / f"{number}.wav"
        said = ["--text", "badc", "--out", str(out), "--seed", "3", "--device", "cpu"]
        assert run(["synthesize", "--model", str(trained), *said]) == 0
        with wave.open(str(out)) as file:
            assert file.getframerate() == ACOUSTIC["sampling_rate"]
            waves.append(file.readframes(file.getnframes()))
    assert waves[0] == waves[1] and len(waves[0]) > 0
    # A part of this text cannot be said, which is told; nothing of the next one can.
    capsys.readouterr()
    out = ["--text", "ab7c", "--out", str(tmp_path / "x.wav"), "--device", "cpu"]
    assert run(["synthesize", "--model", str(trained), *out]) == 0
    assert "no token, left unsaid: '7'" in capsys.readouterr().err
    out = ["--text", "?!", "--out", str(tmp_path / "x.wav"), "--device", "cpu"]
    assert run(["synthesize", "--model", str(trained), *out]) == 1


def test_a_foreign_preset_value_is_refused_by_name(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        ["train", "vits/tiny", f"data.train={corpus / 'train.jsonl'}", "data.trim_silenc=false"]
    )
    assert code == 2
    assert "trim_silence" in capsys.readouterr().err


# -- what evaluations measure -----------------------------------------------------------------


def context_of(adapter: Any, media: dict[str, Any] | None) -> EvaluationContext:
    return EvaluationContext(
        adapter=adapter,
        strategy=None,
        device="cpu",
        step=1,
        weights="raw",
        prefix="eval",
        wants_media=media is not None,
        log_media=(lambda found: media.update(found)) if media is not None else lambda found: None,
    )


@pytest.fixture
def task() -> Any:
    adapter = AutoTrainingAdapter.from_model(tiny_wrapper(tiny_config()))
    adapter.setup()
    adapter.train_mode()
    dataset = CASE.dataset(4, 1)

    def build(**config: Any) -> tuple[SampleTask, Any]:
        return SampleTask(adapter.model, VitsEvalConfig(**config), dataset), adapter

    return build


def test_samples_are_the_same_at_every_evaluation(task: Any) -> None:
    made, adapter = task(samples=2)
    assert made.positions == [0, 2]
    media: dict[str, Any] = {}
    first = made.run(context_of(adapter, media))
    assert first == made.run(context_of(adapter, None))
    assert set(first) == {"mel_cepstral_distance", "duration_error"}
    assert adapter.model.model.training
    sound, picture = media["1-0/audio"], media["1-0/mel"]
    assert isinstance(sound, Audio) and isinstance(picture, Image)
    assert picture.array.shape[0] == ACOUSTIC["num_mel_channels"]
    nothing, _ = task(samples=0)
    assert nothing.run(context_of(adapter, None)) == {}


def test_recogniser_and_embedder_are_asked_where_they_are_given(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []

    class Recogniser:
        front_end = SimpleNamespace(sample_rate=8000)

        def transcribe(self, waves: Any) -> Any:
            heard.extend(waves)
            return [SimpleNamespace(text="nothing of it")] * len(waves)

    class Embedder:
        def embed(self, waves: Any, rate: int) -> torch.Tensor:
            assert rate == ACOUSTIC["sampling_rate"]
            return torch.ones(len(waves), 3)

    monkeypatch.setattr(evaluation, "load_recogniser", lambda config: Recogniser())
    monkeypatch.setattr(evaluation, "load_embedder", lambda config: Embedder())
    made, adapter = task(samples=2, recogniser="r", embedder="e")
    metrics = made.run(context_of(adapter, None))
    assert metrics["intelligibility_wer"] == 3.0  # three words for one, twice
    assert metrics["speaker_similarity"] == pytest.approx(1.0)
    sample = made._sample(0)
    assert len(heard[0]) == pytest.approx(2 * len(sample.wave), abs=2)


def test_sentences_are_cut_where_durations_run_away(task: Any) -> None:
    made, adapter = task(samples=0, sentences=["abcd"])
    with torch.no_grad():
        adapter.model.model.duration_predictor.flows[0].translate.sub_(6.0)
    media: dict[str, Any] = {}
    made.run(context_of(adapter, media))
    sound = media["sentence-1/audio"]
    assert 1.0 < len(sound.array) / sound.sample_rate <= 2.01  # half a second for each letter


def test_alignments_are_drawn_token_by_token() -> None:
    picture = alignment_picture(torch.tensor([2, 0, 1])).array
    assert (picture[::-1] == np.array([[255, 255, 0], [0, 0, 0], [0, 0, 255]])).all()


def test_speech_is_cut_where_durations_run_away(task: Any) -> None:
    made, adapter = task(samples=1)
    with torch.no_grad():
        adapter.model.model.duration_predictor.flows[0].translate.sub_(6.0)
    sample = made._sample(0)
    assert len(sample.wave) <= 4 * len(sample.reference)


@pytest.mark.parametrize("preset", ["tiny", "ljspeech", "mms-finetune"])
def test_presets_compose(preset: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["train", f"vits/{preset}", f"data.train={corpus / 'train.jsonl'}", "--dry-run"])
    shown = capsys.readouterr().out
    assert code == 0
    assert "segment_size: 8192" in shown and "adam_beta1: 0.8" in shown

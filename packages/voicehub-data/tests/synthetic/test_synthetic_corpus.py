"""The corpus on disk: made by the real synthesiser, equal for equal seeds, never half there."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voicehub.errors import DataError, OptionalDependencyError, VoiceHubError
from voicehub_data.synthetic import CorpusSummary, build_corpus, corpus
from voicehub_data.synthetic.speak import SAMPLE_RATE, to_corpus_rate

MINUTES = 3.0

needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None,
    reason='espeak-ng is not installed: pip install "voicehub-data[synth]"',
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CorpusSummary:
    return build_corpus(tmp_path_factory.mktemp("one") / "corpus", minutes=MINUTES, seed=7)


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@needs_espeak
def test_equal_seeds_give_equal_bytes(made: CorpusSummary, tmp_path: Path) -> None:
    again = build_corpus(tmp_path / "elsewhere", minutes=MINUTES, seed=7)
    assert not again.reused
    assert again.digest == made.digest
    assert files_of(again.directory) == files_of(made.directory)
    other = build_corpus(tmp_path / "other", minutes=MINUTES, seed=8)
    assert other.digest != made.digest


@needs_espeak
def test_rows_tell_the_truth_about_their_files(made: CorpusSummary) -> None:
    for split, manifest in made.manifests.items():
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        assert len(rows) == made.rows[split]
        for row in rows:
            audio, rate = soundfile.read(manifest.parent / row["audio_filepath"], dtype="int16")
            assert rate == SAMPLE_RATE
            assert audio.ndim == 1
            assert row["duration"] == pytest.approx(len(audio) / rate, abs=1e-6)
            assert 0.4 < row["duration"] < 8.0
            assert 1_000 < np.abs(audio.astype(int)).max() < 32_767
    assert made.seconds["train"] == pytest.approx(MINUTES * 60, rel=0.15)


@needs_espeak
def test_voices_sound_different(made: CorpusSummary) -> None:
    """Two speakers must not be one voice under two names."""
    from voicehub_data.synthetic.voices import TRAINING_VOICES, UNSEEN_VOICES

    jobs = [
        {
            "path": str(made.directory.parent / f"{voice.name}.flac"),
            "text": "one two three",
            "voice": vars(voice),
            "rate": 170,
            "pitch": 50,
            "gain_db": -3.0,
        }
        for voice in (*TRAINING_VOICES, *UNSEEN_VOICES)
    ]
    from voicehub_data.synthetic.speak import speak_all

    list(speak_all(jobs, seed=0))
    contents = {Path(job["path"]).read_bytes() for job in jobs}
    assert len(contents) == len(jobs)


@needs_espeak
def test_a_finished_corpus_is_reused_and_another_is_not_overwritten(
    made: CorpusSummary, tmp_path: Path
) -> None:
    assert build_corpus(made.directory, minutes=MINUTES, seed=7).reused
    with pytest.raises(DataError, match=r"seed: there 7, asked 8.*--overwrite"):
        build_corpus(made.directory, minutes=MINUTES, seed=8)
    target = tmp_path / "mine"
    shutil.copytree(made.directory, target)
    replaced = build_corpus(target, minutes=MINUTES, seed=2, overwrite=True)
    assert replaced.record["seed"] == 2
    assert not list(tmp_path.glob(".mine*"))


@needs_espeak
@pytest.mark.parametrize("damage", ["manifest", "record"])
def test_a_damaged_corpus_is_not_taken_for_a_finished_one(
    made: CorpusSummary, tmp_path: Path, damage: str
) -> None:
    target = tmp_path / "corpus"
    shutil.copytree(made.directory, target)
    assert build_corpus(target, minutes=MINUTES, seed=7).reused
    if damage == "manifest":
        (target / "eval_voices.jsonl").unlink()
    else:
        (target / "corpus.json").write_text("{")
    with pytest.raises(DataError, match="no synthetic corpus"):
        build_corpus(target, minutes=MINUTES, seed=7)


def test_a_directory_of_the_user_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="Choose"):
            build_corpus(tmp_path, minutes=MINUTES, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "three years"


@needs_espeak
def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus, "_digest", fail)
    with pytest.raises(OSError, match="No space left"):
        build_corpus(tmp_path / "corpus", minutes=MINUTES)
    assert not list(tmp_path.iterdir())


def test_a_missing_synthesiser_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus.util, "find_spec", lambda name: None)
    with pytest.raises(OptionalDependencyError, match=r'pip install "voicehub-data\[synth\]"'):
        build_corpus(tmp_path / "corpus", minutes=MINUTES)
    assert not list(tmp_path.iterdir())


@needs_espeak
def test_an_error_of_the_speaking_process_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from voicehub_data.synthetic.plan import CorpusPlan, plan_corpus

    def broken(**settings: float) -> CorpusPlan:
        plan = plan_corpus(minutes=MINUTES)
        first = plan.utterances[0]
        wrong = replace(first, voice=replace(first.voice, espeak_name="en-us+nobody-has-this"))
        return CorpusPlan(plan.seed, plan.minutes, (wrong, *plan.utterances[1:]))

    monkeypatch.setattr(corpus, "plan_corpus", broken)
    with pytest.raises(VoiceHubError, match="no voice 'en-us\\+nobody-has-this'"):
        build_corpus(tmp_path / "corpus", minutes=MINUTES)


@needs_espeak
def test_a_deep_data_path_fits_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import espeakng_loader

    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    link = deep / "espeak-ng-data"
    link.symlink_to(espeakng_loader.get_data_path(), target_is_directory=True)
    monkeypatch.setattr(espeakng_loader, "get_data_path", lambda: str(link))
    from voicehub_data.synthetic.espeak import Espeak
    from voicehub_data.synthetic.voices import TRAINING_VOICES

    with Espeak() as espeak:
        assert espeak.say("yes", TRAINING_VOICES[0], rate=170, pitch=50).size > 1_000


def test_resampling_keeps_pitch_and_level_and_never_clips() -> None:
    time = np.arange(22_050) / 22_050
    tone = np.rint(32_767 * np.sin(2 * np.pi * 440 * time)).astype(np.int16)
    out = to_corpus_rate(tone, 22_050, gain_db=-6.0)
    assert out.shape == (SAMPLE_RATE,)
    spectrum = np.abs(np.fft.rfft(out.astype(float)))
    assert int(spectrum.argmax()) == 440
    assert np.abs(out[2_000:-2_000].astype(int)).max() == pytest.approx(
        32_767 * 10 ** (-6 / 20), rel=0.01
    )
    square = np.where(np.sin(2 * np.pi * 100 * time) >= 0, 32_767, -32_768).astype(np.int16)
    loud = to_corpus_rate(square, 22_050, gain_db=0.0)
    assert np.abs(loud.astype(int)).max() <= 32_735

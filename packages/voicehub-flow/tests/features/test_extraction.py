"""Extraction of a manifest: clips, rejections, shards, interruptions, shares, videos, commands."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import killed_readers
import numpy as np
import pytest
import soundfile
import torch
from typer.testing import CliRunner

from voicehub.errors import ConfigurationError, DataError
from voicehub_data.manifest import read_manifest
from voicehub_data.shared_work import WorkerLostError
from voicehub_flow.features.run import ShardWork, extract_features
from voicehub_flow.features.settings import ExtractionSettings, choices
from voicehub_flow.features.video_frames import Video
from voicehub_flow.store import layout, open_store
from voicehub_flow.store.verify import verify_store

RATE = 4000
OPTIONS = [
    f"audio.sample_rate={RATE}",
    "audio.n_fft=128",
    "audio.hop_length=100",
    "audio.n_mels=10",
    "audio.latent_dim=4",
    "text.tokens=3",
    "text.channels=16",
]
NAMES = {"audio": "log-mel-pca", "text": "hashed", "clip": None, "sync": None}


def sound(seconds: float, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * (200 + 100 * seed) * time) * np.hanning(len(time))
    return (0.2 * tone + 0.01 * generator.standard_normal(len(time))).astype(np.float32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Nine recordings of which four give no clip of half a second."""
    directory = tmp_path_factory.mktemp("corpus")
    rows = []
    for number in range(9):
        audio = sound(0.5 + 0.3 * (number % 3), number)
        if number == 2:
            audio = sound(0.49, number)
        if number == 4:
            audio = 1e-8 * audio
        soundfile.write(directory / f"{number}.wav", audio, RATE, subtype="FLOAT")
        rows.append(
            {"id": f"r{number}", "audio_filepath": f"{number}.wav", "text": f"word {number}"}
        )
    (directory / "6.wav").write_bytes(b"RIFF and no sound")
    (directory / "7.wav").unlink()
    manifest = directory / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest


def extract(manifest: Path, store: Path, **settings):
    """Extract with small features, two recordings a shard."""
    options = {"processes": 1, "restart": False, "progress": None}
    given = {key: settings.pop(key, value) for key, value in options.items()}
    asked = ExtractionSettings.load({"seconds": 0.5, "shard_rows": 2, **settings})
    return extract_features(
        read_manifest(manifest), store, choices(NAMES, OPTIONS), settings=asked, **given
    )


def contents(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def extracted(corpus, tmp_path_factory):
    store = tmp_path_factory.mktemp("extracted") / "store"
    return store, extract(corpus, store)


def test_recordings_without_a_clip_are_rejected_and_counted_by_reason(extracted):
    store, summary = extracted
    assert summary.clips == 5
    assert summary.rejected == {"too-short": 1, "silent": 1, "unreadable": 2}
    assert "row 3 (id 'r2'): 0.490 s; at least 0.5 s" in summary.examples["too-short"]
    lines = [json.loads(line) for line in (store / "rejected.jsonl").read_text().splitlines()]
    assert {line["id"]: line["reason"] for line in lines} == {
        "r2": "too-short",
        "r4": "silent",
        "r6": "unreadable",
        "r7": "unreadable",
    }
    opened = open_store(store)
    assert opened.ids == ["r0", "r1", "r3", "r5", "r8"]
    assert opened.texts[2] == "word 3"
    assert not verify_store(store).problems
    assert summary.seconds == pytest.approx(2.5)


def test_what_is_stored_is_what_the_extractors_say(extracted, corpus):
    store, _ = extracted
    opened = open_store(store)
    from voicehub_flow.features.mel_pca import load

    audio = load(store / "extractors" / "audio")
    found = opened.read(2, layout.AUDIO_TENSORS)
    samples = soundfile.read(corpus.parent / "3.wav", dtype="float32")[0][: RATE // 2]
    expected, deviation = audio.encode(
        torch.from_numpy(samples * np.float32(0.95 / abs(samples).max()))
    )
    torch.testing.assert_close(found["mean"], expected)
    torch.testing.assert_close(found["std"], deviation)
    from voicehub_flow.features.registry import build_extractor

    text = build_extractor("text", "hashed", store / "extractors" / "text", {})
    assert torch.equal(found["text_features"], text.encode(["word 3"])[0])
    statistics = opened.latent_statistics()
    frames = torch.cat([opened.read(i, ["mean"])["mean"] for i in range(5)]).double()
    torch.testing.assert_close(statistics.mean, frames.mean(0))


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(
    extracted, corpus, tmp_path, monkeypatch
):
    whole = ShardWork._shard
    made: list[int] = []

    def failing(self, maker, number, tell):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(number)
        whole(self, maker, number, tell)

    monkeypatch.setattr(ShardWork, "_shard", failing)
    store = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        extract(corpus, store)
    with pytest.raises(DataError, match="holds no meta.json"):
        open_store(store)
    monkeypatch.setattr(ShardWork, "_shard", whole)
    # A shard that was half written counts for nothing.
    (store / "shards" / "000001" / "shard.json").write_text("{")
    summary = extract(corpus, store)
    assert summary.resumed == 2
    assert contents(store) == contents(extracted[0])
    assert extract(corpus, store).resumed == 9


@pytest.mark.skipif(not killed_readers.POSSIBLE, reason="needs leases of Linux")
def test_a_killed_process_is_named_and_what_was_done_stays(extracted, corpus, tmp_path):
    store = tmp_path / "store"
    with ExitStack() as stack:

        def trap(done, total):
            if done == 0:  # extractors are fitted: from here on processes read
                file = corpus.with_name("6.wav")
                stack.enter_context(killed_readers.deadly(file, worker=1))

        with pytest.raises(WorkerLostError, match=r"SIGKILL .* at \S*6\.wav \(.*row 7"):
            extract(corpus, store, processes=2, progress=trap)
    assert extract(corpus, store).resumed >= 2  # the first shard of the one that was killed
    assert contents(store) == contents(extracted[0])


def test_another_jobs_work_is_not_mixed_in(extracted, corpus, tmp_path):
    store = tmp_path / "store"
    extract(corpus, store)
    with pytest.raises(DataError, match=r"another extraction \(other settings\).*--restart"):
        extract(corpus, store, gain=None)
    extract(corpus, store, gain=None, restart=True)
    assert not verify_store(store).problems
    (store / "job.json").unlink()
    with pytest.raises(DataError, match=r"job\.json is missing"):
        extract(corpus, store)


def test_short_recordings_are_padded_where_that_is_asked_for(corpus, tmp_path):
    summary = extract(corpus, tmp_path / "store", short="pad", seconds=1.0, min_seconds=0.2)
    assert summary.rejected == {"silent": 1, "unreadable": 2}
    opened = open_store(tmp_path / "store")
    frames = {name: int(opened.read(i, ["frames"])["frames"]) for i, name in enumerate(opened.ids)}
    assert opened.tensors["mean"].row_shape == (41, 4)
    assert frames == {"r0": 21, "r1": 33, "r2": 20, "r3": 21, "r5": 41, "r8": 41}
    valid = torch.cat([opened.read(i, ["mean"])["mean"][:f] for i, f in enumerate(frames.values())])
    torch.testing.assert_close(opened.latent_statistics().mean, valid.double().mean(0))


def test_long_recordings_give_several_clips(corpus, tmp_path):
    summary = extract(corpus, tmp_path / "store", max_segments=3, seconds=0.3)
    opened = open_store(tmp_path / "store")
    assert [name for name in opened.ids if name.startswith("r8")] == ["r8#0", "r8#1", "r8#2"]
    assert [name for name in opened.ids if name.startswith("r0")] == ["r0#0"]
    assert summary.rejected == {"silent": 2, "unreadable": 2}
    assert set(opened.texts) == {f"word {n}" for n in (0, 1, 2, 3, 5, 8)}


def test_a_corpus_that_gives_nothing_is_an_error(corpus, tmp_path):
    with pytest.raises(DataError, match="not one of 9 recordings gives a clip.*at least 5 s"):
        extract(corpus, tmp_path / "store", seconds=5.0)


def test_features_are_stored_in_half_precision_where_that_is_asked_for(corpus, tmp_path):
    extract(corpus, tmp_path / "store", dtype="bfloat16")
    opened = open_store(tmp_path / "store")
    assert {t.dtype for t in opened.tensors.values()} == {torch.bfloat16}
    assert not verify_store(tmp_path / "store").problems


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"short": "pad", "max_segments": 2}, "leave out max_segments"),
        ({"min_seconds": 0.1}, "set short=pad"),
        ({"secods": 1}, "unknown key 'secods'.*seconds"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong, message):
    with pytest.raises(ConfigurationError, match=message):
        ExtractionSettings.load({"seconds": 0.5, **wrong})


# -- videos ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filmed(tmp_path_factory):
    """Three recordings: a folder of pictures, an animation, and one without a video."""
    image = pytest.importorskip("PIL.Image")
    directory = tmp_path_factory.mktemp("filmed")
    pictures = [image.new("RGB", (8, 8), (20 * n, 0, 0)) for n in range(12)]
    (directory / "folder").mkdir()
    for number, picture in enumerate(pictures):
        picture.save(directory / "folder" / f"{number:03d}.png")
    pictures[0].save(
        directory / "b.gif", save_all=True, append_images=pictures[1:], duration=50, loop=0
    )
    rows = []
    for number, video in enumerate(({"video": "folder", "video_fps": 20}, {"video": "b.gif"}, {})):
        soundfile.write(directory / f"{number}.wav", sound(0.6, number), RATE)
        rows.append({"id": f"v{number}", "audio_filepath": f"{number}.wav", "text": "a", **video})
    manifest = directory / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest


def test_a_video_gives_both_kinds_of_features_and_its_absence_is_counted(filmed, tmp_path):
    chosen = choices(
        {**NAMES, "clip": "frame-grid", "sync": "motion-grid"},
        [*OPTIONS, "clip.fps=5", "clip.rows=1", "clip.columns=1", "sync.fps=20"],
    )
    settings = ExtractionSettings(seconds=0.6)
    summary = extract_features(read_manifest(filmed), tmp_path / "s", chosen, settings=settings)
    assert summary.rejected == {"no-video": 1}
    opened = open_store(tmp_path / "s", required=layout.VIDEO_TENSORS)
    found = opened.read(0, layout.VIDEO_TENSORS)
    # Pictures 2, 6 and 10 are shown in the middle of each fifth of a second.
    red = [20 * n / 127.5 - 1 for n in (2, 6, 10)]
    torch.testing.assert_close(found["clip_features"][:, 0], torch.tensor(red))
    assert found["sync_features"].shape == (12, 16)
    moved = found["sync_features"].mean(1)
    assert moved[0] == 0 and (moved[1:] > 0).all()
    assert not verify_store(tmp_path / "s").problems


def test_videos_that_cannot_be_read_say_why(filmed, tmp_path):
    folder = filmed.parent / "folder"
    with pytest.raises(DataError, match="column 'video_fps'"):
        Video(folder, None)
    with pytest.raises(DataError, match="ffmpeg -i FILE"):
        Video(filmed, 20.0)
    with pytest.raises(DataError, match=r"0\.60 s long; the segment ends at 1\.50 s"):
        Video(folder, 20.0).frames(0.5, 1.0, 10.0)
    np.save(tmp_path / "grey.npy", np.zeros((3, 4, 4), np.uint8))
    with pytest.raises(DataError, match=r"expected uint8 \(frames, height, width, 3\)"):
        Video(tmp_path / "grey.npy", 5.0)


# -- commands ----------------------------------------------------------------------------------


def command(*words: str):
    """The last line of JSON, and the exit code, of a command run in this process."""
    from voicehub_flow.features.cli.app import app

    result = CliRunner().invoke(app, [*words, "--json"])
    lines = result.output.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}, result


def test_the_commands_extract_and_verify(corpus, tmp_path):
    store = tmp_path / "store"
    options = [word for option in OPTIONS for word in ("-o", option)]
    made, result = command("extract", str(corpus), str(store), "--seconds", "0.5", *options)
    assert result.exit_code == 0, result.output
    assert made["clips"] == 5 and made["rejected"]["silent"] == 1
    found, result = command("verify", str(store))
    assert result.exit_code == 0 and found["checksums"] and not found["problems"]
    path = layout.tensor_path(store / "shards" / "000000", "std")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    found, result = command("verify", str(store))
    assert result.exit_code == 1
    assert [problem["kind"] for problem in found["problems"]] == ["changed"]


def test_the_command_gives_a_published_store_ids(tmp_path):
    tensors = {name: torch.ones(2, 3, 2) for name in layout.AUDIO_TENSORS}
    directory = tmp_path / "store"
    directory.mkdir()
    for name, tensor in tensors.items():
        layout.tensor_path(directory, name).write_bytes(layout.raw_bytes(tensor))
    layout.write_meta(directory, tensors)
    table = tmp_path / "t.tsv"
    table.write_text("id\tcaption\na\tone\nb\ttwo\n")
    made, result = command("index", str(directory), str(table))
    assert result.exit_code == 0 and made["clips"] == 2
    assert open_store(directory).ids == ["a", "b"]

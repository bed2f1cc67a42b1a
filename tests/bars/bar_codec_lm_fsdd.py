"""A tiny codec language model speaks the ten digits in six voices."""

from __future__ import annotations

import time
from pathlib import Path

from barkit import Outcome, bar, shared_data, voicehub
from digit_judges import (
    Clip,
    Judges,
    clips_of,
    read_rows,
    with_shuffled_texts,
    write_wav,
)

OF_ROUND_TRIP, OF_RECORDINGS, SHUFFLED, MINUTES = 0.85, 0.93, 0.20, 30.0
#: Bins of the codec; fewer sound duller, more leave more to four codebooks.
CODEC = ("--set", "n_mels=32")


def fit_codec(scratch: Path) -> Path:
    """The corpus codec of the training recordings."""
    out = scratch / "codec"
    voicehub("codec", "fit", "--data", shared_data("fsdd") / "train.jsonl", "--out", out, *CODEC)
    return out


def train(manifest: Path, codec: Path, scratch: Path) -> Path:
    """Train the tiny preset; returns the model's directory."""
    answer = voicehub(
        "train",
        "codec-lm/tiny",
        f"model.codec.path={codec}",
        f"data.token_cache={scratch / 'tokens'}",
        f"data.train={manifest}",
        f"training.output_dir={scratch / 'run'}",
    )
    return Path(answer["summary"]["model_directory"])


def spoken(model: Path, scratch: Path) -> list[Clip]:
    """The model's own 300: the digit and speaker of every test recording, each another draw."""
    from voicehub_codec_lm.model import CodecLM

    wrapper = CodecLM.from_pretrained(model, model_type="musicgen").load()
    folder = scratch / "spoken"
    folder.mkdir()
    made = []
    for seed, row in enumerate(read_rows(shared_data("fsdd") / "test.jsonl")):
        (speech,) = wrapper.synthesize([row["text"]], speaker=row["speaker"], seed=seed)
        path = folder / f"{seed:03d}.wav"
        write_wav(path, speech.waveform, speech.sampling_rate)
        made.append(Clip(path, row["text"]))
    return made


def round_trip(codec: Path, scratch: Path) -> list[Clip]:
    """The test recordings as the codec leaves them."""
    out = scratch / "decoded"
    test = shared_data("fsdd") / "test.jsonl"
    voicehub("codec", "decode", "--codec", codec, "--data", test, "--out", out)
    return clips_of(out / "manifest.jsonl")


@bar(
    "codec-lm-fsdd",
    f"judges get >= {OF_ROUND_TRIP} of their accuracy on the codec's round trip, which is >= "
    f"{OF_RECORDINGS} of that on recordings, within {MINUTES:g} minutes of training",
)
def codec_lm_fsdd(scratch: Path) -> Outcome:
    data = shared_data("fsdd")
    judges = Judges(scratch)
    began = time.perf_counter()
    codec = fit_codec(scratch)
    model = train(data / "train.jsonl", codec, scratch)
    minutes = (time.perf_counter() - began) / 60.0
    return verdict(judges, model, codec, scratch, minutes)


def verdict(judges: Judges, model: Path, codec: Path, scratch: Path, minutes: float) -> Outcome:
    """What the judges hear."""
    heard = judges.accuracy(spoken(model, scratch))
    ceiling = judges.accuracy(round_trip(codec, scratch))
    natural = judges.accuracy(clips_of(shared_data("fsdd") / "test.jsonl"))
    passed = minutes <= MINUTES
    parts = []
    for name in heard:
        of_ceiling, kept = heard[name] / ceiling[name], ceiling[name] / natural[name]
        passed = passed and of_ceiling >= OF_ROUND_TRIP and kept >= OF_RECORDINGS
        parts.append(f"{name} {of_ceiling:.3f} of {kept:.3f} of {natural[name]:.3f}")
    figure = f"{'; '.join(parts)}; {minutes:.1f} min"
    extra = {"spoken": heard, "round_trip": ceiling, "recordings": natural, "minutes": minutes}
    return Outcome(figure, passed, extra)


@bar(
    "codec-lm-fsdd-shuffled",
    f"with texts shuffled among the recordings the judges get <= {SHUFFLED:g}",
)
def codec_lm_fsdd_shuffled(scratch: Path) -> Outcome:
    manifest = with_shuffled_texts(shared_data("fsdd") / "train.jsonl", scratch)
    judges = Judges(scratch)
    heard = judges.accuracy(spoken(train(manifest, fit_codec(scratch), scratch), scratch))
    figure = ", ".join(f"{name} {share:.3f}" for name, share in heard.items())
    return Outcome(figure, all(share <= SHUFFLED for share in heard.values()), heard)

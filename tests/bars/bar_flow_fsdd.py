"""A tiny flow-matching model speaks the ten digits in six voices."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from barkit import Outcome, bar, shared_data, voicehub
from digit_judges import (
    Clip,
    Judges,
    clips_of,
    read_rows,
    with_shuffled_texts,
    write_wav,
)

OF_VOCODED, AT_LEAST, SHUFFLED, MINUTES = 0.95, 0.70, 0.20, 30.0


def train(manifest: Path, scratch: Path) -> Path:
    """Train the tiny preset as a user would; returns the directory of its averaged model."""
    answer = voicehub(
        "train",
        "flow/tiny-tts",
        f"data.train={manifest}",
        f"training.output_dir={scratch / 'run'}",
    )
    return Path(answer["summary"]["averaged_model_directory"])


def load(model: Path) -> Any:
    """The model, through the class that finds it."""
    from voicehub import AutoModelForTextToSpeech

    return AutoModelForTextToSpeech.from_pretrained(model, model_type="f5tts", lazy_load=False)


def spoken(wrapper: Any, folder: Path) -> list[Clip]:
    """The model's own 300: the digit and speaker of every test recording, each another draw."""
    folder.mkdir()
    made = []
    for seed, row in enumerate(read_rows(shared_data("fsdd") / "test.jsonl")):
        (speech,) = wrapper.synthesize([row["text"]], speaker=row["speaker"], seed=seed)
        path = folder / f"{seed:03d}.wav"
        write_wav(path, speech.waveform, speech.sampling_rate)
        made.append(Clip(path, row["text"]))
    return made


def vocoded(wrapper: Any, folder: Path) -> list[Clip]:
    """The test recordings as the model's frames and vocoder leave them."""
    import torch

    from voicehub_data.audio import load_audio
    from voicehub_flow.tts.data import MelReader

    folder.mkdir()
    frames = MelReader(wrapper.config.mel).frames
    made = []
    for number, clip in enumerate(clips_of(shared_data("fsdd") / "test.jsonl")):
        audio = load_audio(clip.path, sample_rate=wrapper.sampling_rate)
        path = folder / f"{number:03d}.wav"
        wave = wrapper.vocoder(frames(torch.from_numpy(audio))).numpy()
        write_wav(path, wave, wrapper.sampling_rate)
        made.append(Clip(path, clip.text))
    return made


@bar(
    "flow-fsdd",
    f"judges get >= {OF_VOCODED} of their accuracy on vocoded test recordings and >= "
    f"{AT_LEAST:.0%}, within {MINUTES:g} minutes of training",
)
def flow_fsdd(scratch: Path) -> Outcome:
    judges = Judges(scratch)
    began = time.perf_counter()
    model = train(shared_data("fsdd") / "train.jsonl", scratch)
    minutes = (time.perf_counter() - began) / 60.0
    return verdict(judges, load(model), scratch, minutes)


def verdict(judges: Judges, wrapper: Any, scratch: Path, minutes: float) -> Outcome:
    """What the judges hear."""
    heard = judges.accuracy(spoken(wrapper, scratch / "spoken"))
    ceiling = judges.accuracy(vocoded(wrapper, scratch / "vocoded"))
    passed = minutes <= MINUTES
    parts = []
    for name, share in heard.items():
        of_ceiling = share / ceiling[name]
        passed = passed and of_ceiling >= OF_VOCODED and share >= AT_LEAST
        parts.append(f"{name} {share:.3f}, {of_ceiling:.3f} of vocoded {ceiling[name]:.3f}")
    figure = f"{'; '.join(parts)}; {minutes:.1f} min"
    extra = {"spoken": heard, "vocoded": ceiling, "minutes": minutes}
    return Outcome(figure, passed, extra)


@bar(
    "flow-fsdd-shuffled",
    f"with texts shuffled among the recordings the judges get <= {SHUFFLED:g}",
)
def flow_fsdd_shuffled(scratch: Path) -> Outcome:
    manifest = with_shuffled_texts(shared_data("fsdd") / "train.jsonl", scratch)
    judges = Judges(scratch)
    heard = judges.accuracy(spoken(load(train(manifest, scratch)), scratch / "spoken"))
    figure = ", ".join(f"{name} {share:.3f}" for name, share in heard.items())
    return Outcome(figure, all(share <= SHUFFLED for share in heard.values()), heard)

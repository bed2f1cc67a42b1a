"""What a finished model made of prompts: files, what they are, and a contact sheet to look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.checkpoints.strict_json import dump_json
from voicehub.errors import ConfigurationError, DataError
from voicehub.reporting import figures
from voicehub.reporting.media_files import file_html, file_name_of
from voicehub.reporting.page_style import STYLE
from voicehub.trainer.media import Audio, Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voicehub.models.results import Synthesis
    from voicehub.models.sampling import Prompt

SHEET_FILE, INDEX_FILE = "samples.html", "samples.json"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; media-src data: file:; img-src data:"
#: Of the picture of a sample whose model has no mel frames.
_FFT, _HOP = 512, 128


@dataclass(frozen=True)
class SavedSample:
    """One prompt, what was made of it, and where that lies."""

    prompt: Prompt
    seed: int
    made: Synthesis
    audio: Path
    picture: Path


@dataclass
class SampleSheet:
    """Samples of one kind of weights.

    Attributes:
        directory: Where the files are.
        weights: ``raw``, ``ema``, or what else they are called.
        manifest: What an artifact says of these weights.
        samples: In the order of the prompts.
        failed: Messages by prompt id.
    """

    directory: Path
    weights: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    samples: list[SavedSample] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The weights as a person calls them."""
        ema = self.manifest.get("ema") or {}
        name = figures.WEIGHTS.get(self.weights, self.weights)
        if self.weights != "ema" or "sigma_rel" not in ema:
            return name
        return f"{name}, relative width {ema['sigma_rel']:g} over {ema['updates']:,} updates"


def make_samples(
    model: Any,
    prompts: Sequence[Prompt],
    sheet: SampleSheet,
    *,
    seed: int,
    tell: Callable[[SavedSample], None] = lambda sample: None,
) -> None:
    """Make what the prompts ask for, into the sheet's directory; its index and page come last.

    A prompt that cannot be made is noted in ``sheet.failed``, and the others are made.

    Args:
        model: A wrapper with ``sample``.
        prompts: What to make.
        sheet: Gets the samples.
        seed: Each prompt's own seed depends on this and on its id alone.
        tell: Called with every sample once it is on disk.
    """
    sheet.directory.mkdir(parents=True, exist_ok=True)
    names: set[str] = set()
    for number, prompt in enumerate(prompts, start=1):
        name = file_name_of(prompt.id)
        if name in names:  # ids may differ in what a file name cannot hold
            name = f"{name}-{number}"
        names.add(name)
        own = prompt.seed_with(seed)
        try:
            made = model.sample(prompt, seed=own)
        except (DataError, ConfigurationError) as error:  # an unknown speaker is the latter
            sheet.failed[prompt.id] = str(error)
            continue
        audio, picture = sheet.directory / f"{name}.wav", sheet.directory / f"{name}.png"
        audio.write_bytes(Audio(made.waveform, made.sampling_rate).as_wav())
        picture.write_bytes(_picture(made).as_png())
        saved = SavedSample(prompt, own, made, audio, picture)
        sheet.samples.append(saved)
        tell(saved)
    _write(sheet.directory / INDEX_FILE, dump_json(_index(sheet, seed), "samples"))
    _write(sheet.directory / SHEET_FILE, _page(sheet).encode("utf-8"))


def cards_html(sheet: SampleSheet) -> str:
    """The samples as cards: a picture, a player, and what was asked for."""
    cards = []
    for sample in sheet.samples:
        facts = [("weights", sheet.title), ("seed", str(sample.seed))]
        facts += [
            (name, str(value))
            for name in ("text", "speaker", "language", "features")
            if (value := getattr(sample.prompt, name)) is not None
        ]
        listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
        cards.append(
            f'<figure class="chart"><figcaption>{escape(sample.prompt.id)}</figcaption>'
            f"{file_html(sample.picture)}{file_html(sample.audio)}"
            f'<dl class="words">{listed}</dl></figure>'
        )
    wrong = "".join(
        f'<p class="warning">{escape(f"{name}: {why}")}</p>' for name, why in sheet.failed.items()
    )
    return f'{wrong}<div class="charts">{"".join(cards)}</div>' if cards or wrong else ""


def _page(sheet: SampleSheet) -> str:
    title = escape(f"Samples: {sheet.title}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{title}</h1></header>\n{cards_html(sheet)}\n</main></body></html>\n"
    )


def _index(sheet: SampleSheet, seed: int) -> dict[str, Any]:
    rows = [
        {
            "id": sample.prompt.id,
            "text": sample.prompt.text,
            "speaker": sample.prompt.speaker,
            "language": sample.prompt.language,
            "features": sample.prompt.features,
            "seed": sample.seed,
            "seconds": round(sample.made.duration, 3),
            "sampling_rate": sample.made.sampling_rate,
            "audio": sample.audio.name,
            "picture": sample.picture.name,
        }
        for sample in sheet.samples
    ]
    weights = {"weights": sheet.weights, **sheet.manifest}
    return {**weights, "seed": seed, "samples": rows, "failed": dict(sheet.failed)}


def _picture(made: Synthesis) -> Image:
    if made.mel is not None:
        return Image.of_matrix(made.mel.T)
    return Image.of_matrix(_spectrogram(made.waveform).T)


def _spectrogram(wave: NDArray[Any]) -> NDArray[np.float32]:
    """Logarithmic magnitudes (frames, bins), for models without mel frames of their own."""
    padded = np.pad(np.asarray(wave, np.float32), (_FFT // 2, _FFT))
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP]
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(_FFT).astype(np.float32)))
    return np.log(np.maximum(spectrum, 1e-3)).astype(np.float32)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)

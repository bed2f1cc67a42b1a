"""Planned memory of a step against what torch records of it, for many recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barkit import Outcome, Skipped, bar

if TYPE_CHECKING:
    from voicehub.cli.compose import Composition

_LIMIT = 0.10
_ENCODER = "asr-ctc/wav2vec2-finetune"


@dataclass(frozen=True)
class _Case:
    """A recipe: in the tiny shapes of its family, or in its own over tones, with settings."""

    preset: str
    settings: tuple[str, ...] = ()
    tiny: bool = False
    rate: int = 16000
    note: str = ""

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.preset, "tiny" * self.tiny, self.note) if part)


_TINY = tuple(
    _Case(preset, tiny=True)
    for preset in (
        "asr-ctc/tiny",
        "asr-ctc/wav2vec2-finetune",
        "xvector/tiny",
        "vits/tiny",
        "codec-lm/tiny",
        "flow/tiny-tts",
        "flow/tiny-store",
        "asr-llm/tiny",
    )
)
#: One of middling size of every family, from random weights.
_MIDDLE = (
    _Case("asr-ctc/tiny", ("model.hidden_size=384", "model.num_blocks=12"), note="middle"),
    _Case("xvector/resnet34"),
    _Case("vits/ljspeech", ("data.batches.max_batch_size=4",), rate=22050),
    _Case(
        "codec-lm/tiny",
        (
            "model.architecture.hidden_size=512",
            "model.architecture.ffn_dim=2048",
            "model.architecture.num_hidden_layers=8",
        ),
        tiny=True,
        note="middle",
    ),
    _Case(
        "flow/tiny-tts",
        (
            "model.architecture.dim=384",
            "model.architecture.depth=10",
            "model.architecture.heads=6",
            "model.architecture.text_dim=256",
        ),
        rate=8000,
        note="middle",
    ),
    _Case("asr-llm/tiny", tiny=True, note="middle"),
    _Case(_ENCODER, tiny=True, note="middle"),
)
#: What a run may choose beside shapes.
_CHOICES = (
    _Case("asr-ctc/tiny", ("training.bf16=true",), note="bf16"),
    _Case("asr-ctc/tiny", ("training.gradient_accumulation_steps=4",), note="accumulates"),
    _Case("asr-ctc/tiny", ("training.ema_decay=0.9", "training.optim=sgd"), note="ema, sgd"),
    _Case(_ENCODER, ("training.gradient_checkpointing=true",), True, note="middle, checkpointing"),
)


def _composed(case: _Case, directory: Path) -> Composition:
    from planned_memory import composition, tiny_composition

    from voicehub_data.synthetic.tones import write_tone_corpus

    directory.mkdir()
    settings = list(case.settings)
    if case.tiny:
        if case.note and case.preset in _LARGER:
            key, make = _LARGER[case.preset]
            settings.append(f"{key}={make(directory / 'larger')}")
        return tiny_composition(case.preset, directory, settings)
    tones = write_tone_corpus(directory / "tones", clips=64, rate=case.rate)
    return composition(case.preset, directory, [f"data.train={tones}", *settings])


def _decoder(directory: Path) -> Path:
    from voicehub_asr_llm.testing import make_tiny_decoder

    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
    return make_tiny_decoder(directory, **sizes, **heads)


def _encoder(directory: Path) -> Path:
    """As wide and deep in its convolutions as published ones, four layers behind them."""
    from voicehub_hf.testing import make_tiny_ctc_checkpoint

    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4}
    front = {
        "conv_dim": [512] * 7,
        "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
        "conv_stride": [5, 2, 2, 2, 2, 2, 2],
    }
    letters = ["<pad>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz"]
    heads = {"num_attention_heads": 8, "num_feat_extract_layers": 7}
    return make_tiny_ctc_checkpoint(directory, "wav2vec2", letters, **sizes, **front, **heads)


#: Of recipes that start from checkpoints: which setting names one, and what makes a larger one.
_LARGER: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "asr-llm/tiny": ("model.decoder.path", _decoder),
    _ENCODER: ("model.path", _encoder),
}


def _ratios(
    scratch: Path,
    cases: tuple[_Case, ...],
    measure: Callable[[Composition], int],
    *,
    on_card: bool = False,
) -> Iterator[tuple[str, float]]:
    from planned_memory import planned

    for number, case in enumerate(cases):
        composed = _composed(case, scratch / str(number))
        ratio = planned(composed, on_card=on_card).peak / measure(composed)
        print(f"      {case.name}: {ratio:.3f}", flush=True)
        yield case.name, ratio


def _outcome(found: dict[str, float]) -> Outcome:
    shown = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.items())
    worst = max(abs(ratio - 1) for ratio in found.values())
    return Outcome(f"worst {worst:.1%} ({shown})", worst <= _LIMIT)


@bar(
    "plan-memory",
    "planned peak of a training step within 10 % of torch's record: every family tiny and of "
    "middling size, and what a run may choose",
)
def plan_memory(scratch: Path) -> Outcome:
    from planned_memory import measured, trainers

    cases = (*_TINY, *_MIDDLE, *_CHOICES)
    return _outcome(dict(_ratios(scratch, cases, lambda run: measured(trainers(run)))))


@bar(
    "plan-memory-gpu",
    "planned peak within 10 % of what torch allocates on a card, every family of middling size",
)
def plan_memory_gpu(scratch: Path) -> Outcome:
    import torch
    from planned_memory import measured_on_card, trainers

    if not torch.cuda.is_available():
        raise Skipped("no CUDA device is here")
    cases = tuple(
        _Case(
            case.preset, (*case.settings, "training.use_cpu=false"), case.tiny, case.rate, case.note
        )
        for case in _MIDDLE
    )
    measure = lambda run: measured_on_card(trainers(run))  # noqa: E731
    return _outcome(dict(_ratios(scratch, cases, measure, on_card=True)))

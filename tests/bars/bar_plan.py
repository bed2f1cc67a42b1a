"""Planned memory of a step against what torch's allocation profiler records, for many recipes."""

from __future__ import annotations

from pathlib import Path

from barkit import Outcome, bar

#: Tiny shapes of every family.
_TINY = (
    "asr-ctc/tiny",
    "asr-ctc/wav2vec2-finetune",
    "xvector/tiny",
    "vits/tiny",
    "codec-lm/tiny",
    "flow/tiny-tts",
    "flow/tiny-store",
    "asr-llm/tiny",
)
#: From random weights, in the shapes that the preset ships, over tones.
_WHOLE = ("asr-ctc/tiny", "vits/tiny", "flow/tiny-tts", "xvector/resnet34")
_LIMIT = 0.10


@bar("plan-memory", "planned peak of a training step within 10 % of torch's record, 12 recipes")
def plan_memory(scratch: Path) -> Outcome:
    from planned_memory import composition, measured, planned, tiny_composition, trainers

    from voicehub_data.synthetic.tones import write_tone_corpus

    found: dict[str, float] = {}
    for preset in _TINY:
        directory = scratch / preset.replace("/", "-")
        directory.mkdir()
        make = trainers(tiny_composition(preset, directory))
        found[preset] = planned(make).peak / measured(make)
    data = f"data.train={write_tone_corpus(scratch / 'tones', clips=64, rate=16000)}"
    for preset in _WHOLE:
        directory = scratch / f"whole-{preset.replace('/', '-')}"
        directory.mkdir()
        make = trainers(composition(preset, directory, [data]))
        found[f"{preset} whole"] = planned(make).peak / measured(make)
    shown = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.items())
    worst = max(abs(ratio - 1) for ratio in found.values())
    return Outcome(f"worst {worst:.1%} ({shown})", worst <= _LIMIT)

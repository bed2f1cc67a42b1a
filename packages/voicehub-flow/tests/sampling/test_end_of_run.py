"""Runs of the presets in tiny shapes: averages, samples and metrics follow the weights."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from voicehub.cli.app import run
from voicehub.errors import ConfigurationError
from voicehub.models.results import Transcription
from voicehub.models.sampling import Prompt
from voicehub_flow.metrics.listeners import Listeners
from voicehub_flow.metrics.measures import Judges
from voicehub_flow.sampling.config import AfterTrainingConfig
from voicehub_flow.sampling.steps import Example, MetricStep, spread

SHORT = (
    "training.max_steps=4",
    "training.save_strategy=no",
    "training.eval_strategy=no",
    "training.logging_steps=2",
    "training.warmup_steps=0",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of flow/tiny-tts with averages of both kinds of use."""
    from voicehub.cli.compose import compose_preset
    from voicehub_flow.smoke import tiny_settings

    place = tmp_path_factory.mktemp("tts")
    values = compose_preset("flow/tiny-tts", ["data.train=x"]).values
    options = [
        "training.ema_decay=null",
        "training.posthoc_ema=true",
        "training.posthoc_ema_snapshot_steps=1",
        "training.eval_weights=both",
        f"training.output_dir={place / 'run'}",
        "after_training.samples=2",
        "after_training.seed=5",
    ]
    made = tiny_settings(values, place / "made")
    assert run(["train", "flow/tiny-tts", *made, *SHORT, *options]) == 0
    return place / "run"


def index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "samples.json").read_text())
    return found


def test_prompts_of_the_data_are_made_with_both_weights(trained: Path) -> None:
    raw, averaged = index(trained / "samples/raw"), index(trained / "samples/ema")
    assert [row["text"] for row in raw["samples"]] == [row["text"] for row in averaged["samples"]]
    assert len(raw["samples"]) == 2 and raw["samples"][0]["speaker"] is not None
    assert averaged["ema"]["sigma_rel"] == pytest.approx(0.05)
    for rows, folder in ((raw, "raw"), (averaged, "ema")):
        for row in rows["samples"]:
            assert (trained / "samples" / folder / row["audio"]).stat().st_size > 100
            assert (trained / "samples" / folder / row["picture"]).is_file()
    audio = raw["samples"][0]["audio"]
    ours, theirs = (trained / "samples" / w / audio for w in ("raw", "ema"))
    assert ours.read_bytes() != theirs.read_bytes()
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    measured = {row["weights"]: row for row in rows if "weights" in row}
    assert measured["raw"]["eval_sample_frechet_distance_log_mel"] > 0
    assert measured["ema"]["eval_ema_sample_frechet_distance_log_mel"] > 0
    assert "Samples: averaged weights" in (trained / "report.html").read_text()


def test_the_command_makes_them_again_bit_for_bit(trained: Path, tmp_path: Path) -> None:
    first = index(trained / "samples/ema")["samples"][0]
    prompts = tmp_path / "prompts.jsonl"
    asked = {key: first[key] for key in ("id", "text", "speaker")}
    prompts.write_text(json.dumps(asked) + "\n")
    common = ["sample", "--run", str(trained), "--prompts", str(prompts), "--seed", "5"]
    assert run([*common, "--weights", "ema", "--out", str(tmp_path / "ema")]) == 0
    again = tmp_path / "ema" / first["audio"]
    assert again.read_bytes() == (trained / "samples/ema" / first["audio"]).read_bytes()
    wide = tmp_path / "wide"
    assert run([*common, "--sigma-rel", "0.08", "--out", str(wide)]) == 0
    assert index(wide)["ema"]["sigma_rel"] == 0.08
    assert (wide / first["audio"]).read_bytes() != again.read_bytes()
    others = ({**asked, "speaker": "nobody"}, {**asked, "id": "fine"})
    prompts.write_text("".join(json.dumps(row) + "\n" for row in others))
    assert run([*common, "--out", str(tmp_path / "some")]) == 1
    assert list(index(tmp_path / "some")["failed"]) == [first["id"]]


def test_a_feature_store_run_ends_with_its_clips(tmp_path: Path) -> None:
    from voicehub.cli.compose import compose_preset
    from voicehub_flow.store.smoke import tiny_settings

    values = compose_preset("flow/tiny-store", ["data.train=x"]).values
    made = tiny_settings(values, tmp_path / "made")
    options = [f"training.output_dir={tmp_path / 'run'}", "after_training.samples=2"]
    assert run(["train", "flow/tiny-store", *made, *SHORT, *options]) == 0
    found = index(tmp_path / "run/samples/raw")
    assert len(found["samples"]) == 2 and found["failed"] == {}
    assert found["samples"][0]["features"].startswith("eval/")
    rows = (tmp_path / "run/metrics.jsonl").read_text()
    assert "eval_sample_frechet_distance_log_mel" in rows


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": ["wer"]}, r"needs after_training\.recogniser"),
        ({"metrics": ["frechet_distance"], "embedding": "embedder"}, r"after_training\.embedder"),
        ({"metrics": ["frechet_distance"], "samples": 0}, "metrics need samples"),
        ({"sample": 3}, "Did you mean 'samples'"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AfterTrainingConfig.load(values)


class _Deaf:
    """Hears "two" whatever is said."""

    def transcribe(self, waves: Any) -> list[Transcription]:
        return [Transcription(str(n), "two") for n in range(len(waves))]


@pytest.mark.parametrize(("asked", "rate"), [(None, 0.0), ("one", 1.0)])
def test_a_clip_is_compared_with_its_caption_unless_the_prompt_has_a_text(
    asked: str | None, rate: float
) -> None:
    listeners = Listeners(None, None)
    listeners._loaded = {"recogniser": _Deaf()}
    prompt = Prompt("a", text=asked, features="store/a")
    wave = np.ones(800, np.float32)
    example = Example(prompt, lambda: (wave, 16000), "two")
    made = SimpleNamespace(waveform=wave, sampling_rate=16000)
    context = SimpleNamespace(samples=[SimpleNamespace(prompt=prompt, made=made)])
    step = MetricStep("wer", Judges(listeners), {"a": example})
    assert step.run(context) == {"sample_wer": rate}  # type: ignore[arg-type]


def test_prompts_are_spread_over_the_data() -> None:
    assert spread(4, 12) == [0, 3, 6, 9]
    assert spread(5, 3) == [0, 1, 2]
    assert spread(0, 3) == []

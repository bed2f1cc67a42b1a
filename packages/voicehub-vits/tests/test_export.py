"""What a run writes speaks in plain transformers, with the same waveform, voices included."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from voicehub import AutoModelForTextToSpeech, Trainer
from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.errors import ConfigurationError
from voicehub_vits.conformance import ARCHITECTURE
from voicehub_vits.data.voices import Voices
from voicehub_vits.experiment import build_experiment
from voicehub_vits.model import VitsTTS
from voicehub_vits.testing import ACOUSTIC, write_manifest

#: Runs in an interpreter that cannot import anything of ours.
SCRIPT = """
import json, sys
for name in ("voicehub", "voicehub_data", "voicehub_hf", "voicehub_vits"):
    sys.modules[name] = None
import numpy as np, torch
from transformers import AutoTokenizer, VitsModel, pipeline
waves = {}
for job in json.loads(sys.argv[2]):
    model = VitsModel.from_pretrained(job["directory"])
    inputs = AutoTokenizer.from_pretrained(job["directory"])(job["text"], return_tensors="pt")
    for speaker in job["speakers"]:
        torch.manual_seed(job["seed"])
        with torch.no_grad():
            wave = model(**inputs, speaker_id=speaker).waveform[0].numpy()
        waves[f"{job['name']}/{speaker}"] = wave
    if job["speakers"] == [None]:
        speak = pipeline("text-to-speech", model=job["directory"])
        torch.manual_seed(job["seed"])
        waves[f"{job['name']}/pipeline"] = np.asarray(speak(job["text"])["audio"]).reshape(-1)
        waves[f"{job['name']}/rate"] = speak.sampling_rate
np.savez(sys.argv[1], **waves)
"""


class Spoken:
    """What three models said here, and what plain transformers made of their directories."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[dict[str, Any]] = []
        self.here: dict[str, Any] = {}
        self.there: Any = None

    def add(self, name: str, directory: Path, seed: int, waves: dict[Any, Any]) -> None:
        self.jobs.append(
            {
                "name": name,
                "directory": str(directory),
                "text": "badc",
                "seed": seed,
                "speakers": list(waves),
            }
        )
        self.here.update({f"{name}/{speaker}": wave for speaker, wave in waves.items()})

    def run(self) -> None:
        out = self.folder / "waves.npz"
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(out), json.dumps(self.jobs)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-2000:]
        assert "not initialized" not in result.stderr and "not used" not in result.stderr
        self.there = np.load(out)


def train(config: Any) -> tuple[Any, Path]:
    experiment = build_experiment(config)
    trainer = Trainer(
        model=experiment.model,
        args=config.training,
        train_dataset=experiment.train_dataset,
        data_collator=experiment.data_collator,
        train_plan=experiment.train_plan,
    )
    trainer.train()
    return experiment.model, trainer.save_model()


def wave_of(model: Any, **options: Any) -> Any:
    (made,) = model.synthesize(["badc"], **options)
    return made.waveform


VOICES: dict[str, Any] = {
    "architecture": {**ARCHITECTURE, "speaker_embedding_size": 4},
    "text": {"kind": "characters"},
    "training_acoustic_config": ACOUSTIC,
    "language_conditioning": True,
}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Filled by the first test that needs it: one foreign interpreter for all of them."""
    return {}


@pytest.fixture
def spoken(
    made: dict[str, Any],
    checkpoint: Path,
    voices_checkpoint: Path,
    run_config: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Spoken:
    if not made:
        result = Spoken(tmp_path_factory.mktemp("spoken"))
        settings = {"path": str(checkpoint), "training_acoustic_config": ACOUSTIC}
        model, artifact = train(run_config(settings))
        result.add("trained", artifact / "native_export", 7, {None: wave_of(model, seed=7)})
        made["artifact"] = artifact
        elsewhere = str(result.folder / "folded")
        model, artifact = train(run_config(VOICES, training={"output_dir": elsewhere}))
        assert model.voices.pairs == ((0, 0), (1, 1))
        both = {
            row: wave_of(model, speaker=speaker, language=language, seed=3)
            for row, (speaker, language) in enumerate((("anna", "de"), ("bert", "en")))
        }
        result.add("folded", artifact / "native_export", 3, both)
        made["folded"] = artifact
        plain = AutoModelForTextToSpeech.from_pretrained(str(voices_checkpoint), model_type="vits")
        assert isinstance(plain, VitsTTS) and not plain.is_loaded
        waves = {row: wave_of(plain, speaker=row, seed=1) for row in (0, 2)}
        result.add("plain", voices_checkpoint, 1, waves)
        result.run()
        made["spoken"] = result
    found: Spoken = made["spoken"]
    return found


def test_a_trained_model_speaks_alike_everywhere(
    spoken: Spoken, made: dict[str, Any], checkpoint: Path
) -> None:
    here, there, artifact = spoken.here["trained/None"], spoken.there, made["artifact"]
    fresh = AutoModelForTextToSpeech.from_pretrained(artifact, lazy_load=False)
    assert np.array_equal(wave_of(fresh, seed=7), here)
    assert np.array_equal(there["trained/None"], here)
    assert np.array_equal(there["trained/pipeline"], here)
    assert int(there["trained/rate"]) == ACOUSTIC["sampling_rate"]
    # Training moved the decoder, weight norm and all, and left none of it in the export.
    exported = load_file(artifact / "native_export" / "model.safetensors")
    started = load_file(checkpoint / "model.safetensors")
    assert exported.keys() == started.keys()
    name = "decoder.resblocks.0.convs1.0.weight"
    assert not torch.equal(exported[name], started[name])
    manifest = json.loads((artifact / "training_recipe.json").read_text())
    assert manifest["full_vits_fine_tuning"] is True
    assert manifest["native_export"] == "inference-export"


def test_pairs_of_speaker_and_language_become_rows_of_the_table(
    spoken: Spoken, made: dict[str, Any]
) -> None:
    here, there = spoken.here, spoken.there
    assert not np.array_equal(here["folded/0"], here["folded/1"])
    for row in (0, 1):
        np.testing.assert_allclose(there[f"folded/{row}"], here[f"folded/{row}"], atol=1e-6)
    rows = json.loads((made["folded"] / "native_export" / "voices.json").read_text())
    pairs = [(row["speaker"], row["language"]) for row in rows]
    assert pairs == [("anna", "de"), ("bert", "en")]
    fresh = AutoModelForTextToSpeech.from_pretrained(made["folded"])
    assert np.array_equal(wave_of(fresh, speaker="bert", language="en", seed=3), here["folded/1"])


def test_plain_checkpoints_speak_as_transformers_does(spoken: Spoken) -> None:
    for row in (0, 2):
        assert np.array_equal(spoken.there[f"plain/{row}"], spoken.here[f"plain/{row}"])


def test_languages_of_unknown_pairs_are_not_exported(run_config: Any, tmp_path: Path) -> None:
    model = build_experiment(run_config(VOICES)).model
    model.voices = Voices(model.voices.speakers, model.voices.languages, ())
    adapter = AutoTrainingAdapter.from_model(model)
    adapter.setup()
    with pytest.raises(ConfigurationError, match="not which speaker speaks which"):
        model.export_native(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_further_run_keeps_voices_by_name(
    spoken: Spoken, made: dict[str, Any], corpus: Path, run_config: Any, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["audio_filepath"] = str(corpus / row["audio_filepath"])
    settings = {
        "path": str(made["folded"]),
        "training_acoustic_config": ACOUSTIC,
        "language_conditioning": True,
    }

    def goes_on(names: dict[str, str], **model: Any) -> Any:
        kept = [
            {**row, "speaker": names[row["speaker"]]} for row in rows if row["speaker"] in names
        ]
        data = {"train": str(write_manifest(tmp_path / "rows.jsonl", kept))}
        return build_experiment(run_config({**settings, **model}, data))

    experiment = goes_on({"bert": "bert"})
    voices = experiment.model.voices
    assert voices.speakers == ("anna", "bert") and voices.languages == ("de", "en")
    assert voices.pairs == ((0, 0), (1, 1))
    assert {labels[1:] for labels in experiment.train_dataset.labels} == {(1, 1)}
    command = shlex.split(experiment.next_command(tmp_path))
    assert command[-6:] == ["--speaker", "anna", "--language", "de", "--out", "speech.wav"]
    with pytest.raises(ConfigurationError, match="knows the speakers anna, bert.*names carl"):
        goes_on({"bert": "carl"})
    for change, said in (
        ({"speaker_table": "new"}, "start from its native_export"),
        ({"language_conditioning": False}, "set model.language_conditioning=true"),
        ({"discriminator": {"width": 0.5}}, "model.discriminator.width=0.01"),
        ({"duration_discriminator": {"channels": 8}}, "model.duration_discriminator=null"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            goes_on({"bert": "bert"}, **change)

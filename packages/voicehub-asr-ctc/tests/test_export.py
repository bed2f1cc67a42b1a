"""A fine-tuned model, saved by the Trainer, in plain transformers without VoiceHub: same text."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from voicehub.models.auto import AutoModelForSpeechRecognition

KINDS = ["wav2vec2", "hubert", "wavlm", "wav2vec2-bert", "parakeet"]
#: Odd lengths too: processors append masked rows to some of them.
SAMPLES = [16000, 32000, 20123, 9999]

READER = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith("voicehub"):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import numpy as np, torch
torch.set_num_threads(1)
from transformers import AutoModelForCTC, AutoProcessor, pipeline
job, answers = json.load(open(sys.argv[1])), {}
for kind, folder in job["folders"].items():
    model = AutoModelForCTC.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    recognise = pipeline("automatic-speech-recognition", model=folder)
    answers[kind] = {"pipeline": [], "auto": []}
    for path in job["audio"]:
        wave = np.load(path)
        answers[kind]["pipeline"].append(recognise(wave.copy())["text"])
        inputs = processor(wave, sampling_rate=16000, return_tensors="pt")
        with torch.no_grad():
            ids = model(**inputs).logits.argmax(-1)
        answers[kind]["auto"].append(processor.batch_decode(ids)[0])
assert not [name for name in sys.modules if name.startswith("voicehub")]
json.dump(answers, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def waves():
    generator = np.random.default_rng(5)
    return [generator.standard_normal(n).astype(np.float32) * 0.1 for n in SAMPLES]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, checkpoint_of, tone_corpus, trainer_of, waves):
    """Each class after two updates, saved; what plain transformers reads from the exports."""
    folder = tmp_path_factory.mktemp("exports")
    final, settings = {}, {"hubert": {"lora": {"rank": 2}}}
    for kind in KINDS:
        values = {
            "family": "asr-ctc", "model_type": f"ctc-{kind}",
            "model": {"path": str(checkpoint_of(kind)), "tokenizer": {"kind": "checkpoint"},
                      **settings.get(kind, {})},
            "data": {"train": str(tone_corpus(8))},
            "training": {"output_dir": str(folder / kind), "use_cpu": True, "max_steps": 2,
                         "learning_rate": 1e-4, "save_strategy": "no"},
        }  # fmt: skip
        torch.manual_seed(0)
        trainer = trainer_of(values)
        trainer.train()
        final[kind] = trainer.save_model()
    audio = []
    for number, wave in enumerate(waves):
        audio.append(str(folder / f"{number}.npy"))
        np.save(audio[-1], wave)
    job, answers = folder / "job.json", folder / "answers.json"
    folders = {kind: str(path / "native_export") for kind, path in final.items()}
    job.write_text(json.dumps({"folders": folders, "audio": audio}))
    subprocess.run([sys.executable, "-c", READER, str(job), str(answers)], check=True)
    return final, json.loads(answers.read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_plain_transformers_gives_the_same_text(exported, waves, kind):
    final, answers = exported
    model = AutoModelForSpeechRecognition.from_pretrained(final[kind], lazy_load=False)
    ours = [result.text for result in model.transcribe(waves, batch_size=3)]
    assert ours == [text.strip() for text in answers[kind]["pipeline"]]
    assert ours == [text.strip() for text in answers[kind]["auto"]]
    assert len({*ours, ""}) > 2, "texts that say nothing prove nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_the_export_itself_is_a_model_here(exported, waves, kind):
    final, answers = exported
    model = AutoModelForSpeechRecognition.from_pretrained(
        final[kind] / "native_export", lazy_load=False
    )
    assert model.model_type == f"ctc-{kind}"
    ours = [result.text for result in model.transcribe(waves)]
    assert ours == [text.strip() for text in answers[kind]["pipeline"]]


def test_adapters_are_saved_for_plain_peft(exported, checkpoint_of):
    final, _ = exported
    from peft import PeftModel
    from transformers import AutoModelForCTC

    base = AutoModelForCTC.from_pretrained(checkpoint_of("hubert"))
    adapted = PeftModel.from_pretrained(base, final["hubert"] / "lora").merge_and_unload()
    merged = AutoModelForCTC.from_pretrained(final["hubert"] / "native_export")
    merged_state = merged.state_dict()
    for name, tensor in adapted.state_dict().items():
        torch.testing.assert_close(tensor, merged_state[name], msg=name)


def test_weights_are_on_disk_once(exported):
    final, _ = exported
    one = final["wav2vec2"] / "transformers" / "model.safetensors"
    other = final["wav2vec2"] / "native_export" / "model.safetensors"
    assert one.samefile(other)

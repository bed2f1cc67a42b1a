"""Model types whose data the user prepares."""

from __future__ import annotations

import pytest
import torch

from voicehub import get_training_spec
from voicehub.errors import ConfigurationError
from voicehub.models.auto import AutoModelForTextToSpeech
from voicehub.specs.support import TrainingSupport
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.trainer import Trainer
from voicehub_codec_lm.testing import llama


@pytest.mark.parametrize("model_type", ["parlertts", "dia", "orpheus", "llasa"])
def test_the_spec_says_that_data_must_be_prepared(model_type):
    spec = get_training_spec(model_type)
    assert spec.support is TrainingSupport.PREPROCESSED and spec.config_class is None


@pytest.mark.parametrize("model_type", ["codec-causal-lm", "musicgen", "csm"])
def test_native_specs_have_everything_a_run_needs(model_type):
    spec = get_training_spec(model_type)
    assert spec.support is TrainingSupport.NATIVE
    assert spec.config_class and spec.experiment_factory and spec.smoke_factory


@pytest.mark.parametrize("model_type", ["orpheus", "llasa"])
def test_prepared_sequences_train_a_llama(model_type, tmp_path):
    path = llama(tmp_path / "checkpoint")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 40, (12,), generator=generator)
    rows = [{"input_ids": ids, "labels": ids}] * 8
    model = AutoModelForTextToSpeech.from_pretrained(path, model_type=model_type)
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=8, per_device_train_batch_size=4,
        learning_rate=1e-2, logging_steps=1, save_strategy="no", use_cpu=True, report_to=[],
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert losses[-1] < losses[0] - 0.5
    directory = trainer.save_model(tmp_path / "artifact")
    again = AutoModelForTextToSpeech.from_pretrained(directory).load()
    assert again.model_type == model_type
    with torch.no_grad():
        ours, theirs = (m.model.eval()(input_ids=ids[None]).logits for m in (model, again))
    assert torch.equal(ours, theirs)


def test_a_missing_package_is_named(tmp_path):
    pytest.importorskip("transformers")
    try:
        import parler_tts  # noqa: F401
    except ImportError:
        model = AutoModelForTextToSpeech.from_pretrained(tmp_path, model_type="parlertts")
        with pytest.raises(ConfigurationError, match="package parler_tts, which is not installed"):
            model.load()
    else:
        pytest.skip("parler_tts is installed here")

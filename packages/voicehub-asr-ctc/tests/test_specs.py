"""Specs are light, complete, and lead to what they name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from voicehub.adapters.auto import AutoTrainingAdapter
from voicehub.plugins.loading import resolve_reference
from voicehub.specs.registry import get_training_spec, list_training_specs
from voicehub.trainer.run_config import RunConfig
from voicehub_asr_ctc.adapter import CTCAdapter
from voicehub_asr_ctc.config import LogMelModelConfig
from voicehub_asr_ctc.model import LogMelCTC
from voicehub_asr_ctc.tokenizers import CharacterTokenizer
from voicehub_hf.encoders import CTC_ENCODERS

NAMES = ["ctc-hubert", "ctc-logmel", "ctc-parakeet", "ctc-wav2vec2", "ctc-wav2vec2-bert",
         "ctc-wavlm"]  # fmt: skip


def test_all_six_are_found():
    found = [spec.model_type for spec in list_training_specs() if spec.family == "asr-ctc"]
    assert sorted(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_is_complete(name):
    spec = get_training_spec(name)
    assert spec.is_turnkey and spec.summary
    assert issubclass(resolve_reference(spec.config_class), RunConfig)
    assert callable(resolve_reference(spec.experiment_factory))


def test_architectures_are_those_of_the_encoders():
    named = {a for name in NAMES for a in get_training_spec(name).architectures}
    assert named == {encoder.architecture for encoder in CTC_ENCODERS.values()}


def test_specs_import_no_tensor_library():
    code = (
        "import sys, voicehub_asr_ctc.specs, voicehub_asr_ctc.presets\n"
        "heavy = {'torch', 'numpy', 'transformers', 'pydantic', 'tokenizers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_adapter_comes_from_the_entry_point():
    config = LogMelModelConfig(hidden_size=8, num_heads=2)
    model = LogMelCTC.from_config(config, CharacterTokenizer.from_characters("ab"))
    adapter = AutoTrainingAdapter.from_model(model)
    assert isinstance(adapter, CTCAdapter) and not model.is_loaded

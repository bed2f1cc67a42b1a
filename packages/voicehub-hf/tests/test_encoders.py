"""The table of encoders agrees with transformers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import (
    CTC_ENCODERS,
    base_encoder,
    ctc_encoder,
    ctc_head,
    padding_sensitive,
    uses_batch_statistics,
)


def test_every_name_in_the_table_exists(load, model_type):
    import transformers

    encoder = CTC_ENCODERS[model_type]
    model, processor = load(model_type)
    assert type(model).__name__ == encoder.architecture
    assert type(processor).__name__ == encoder.processor_class
    assert type(processor.feature_extractor).__name__ == encoder.feature_extractor_class
    assert type(processor.tokenizer).__name__ == encoder.tokenizer_class
    assert processor.feature_extractor.sampling_rate == encoder.sample_rate
    assert processor.feature_extractor.model_input_names[0] == encoder.input_name
    assert model.main_input_name == encoder.input_name
    for path in (encoder.feature_module, *encoder.front_end):
        assert list(base_encoder(model).get_submodule(path).parameters())
    assert ctc_head(model).weight.shape[0] == model.config.vocab_size
    for name in encoder.pretrained_architectures:
        assert hasattr(transformers, name)
    suffixes = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    assert set(encoder.lora_targets) <= suffixes


def test_an_encoder_is_found_by_any_of_its_names(load, model_type):
    encoder = CTC_ENCODERS[model_type]
    model, _ = load(model_type)
    names = [model_type, encoder.architecture, f"ctc-{model_type.split('_')[0]}"]
    for source in (*names, model, model.config):
        assert ctc_encoder(source) is encoder


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(ConfigurationError, match=r"Known: wav2vec2, .*Did you mean 'hubert'"):
        ctc_encoder("huber")
    with pytest.raises(ConfigurationError, match="'whisper' is not a CTC model"):
        ctc_encoder("whisper")


def test_batch_statistics_are_parakeets(load, model_type):
    model, _ = load(model_type)
    found = any("BatchNorm" in type(module).__name__ for module in model.modules())
    assert uses_batch_statistics(model.config) == found == (model_type == "parakeet_ctc")


@pytest.mark.parametrize("model_type", ["wav2vec2", "hubert", "wavlm"])
def test_group_normalisation_declares_itself(load, model_type):
    grouped, processor = load(model_type, feat_extract_norm="group", do_stable_layer_norm=False)
    layered, _ = load(model_type)
    assert padding_sensitive(grouped.config)
    assert not padding_sensitive(layered.config)
    assert not processor.feature_extractor.return_attention_mask


def test_importing_the_package_loads_neither_torch_nor_transformers():
    code = (
        "import sys, voicehub_hf, voicehub_hf.encoders, voicehub_hf.lengths\n"
        "print(sorted({'torch', 'transformers', 'peft', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_imports_transformers_before_it_is_used():
    code = (
        "import sys, pkgutil, importlib, voicehub_hf\n"
        "for found in pkgutil.iter_modules(voicehub_hf.__path__):\n"
        "    importlib.import_module(f'voicehub_hf.{found.name}')\n"
        "print(sorted({'transformers', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Presets bind what belongs together; parts that contradict each other are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from voicehub_asr_llm.config import AsrLlmModelConfig, AsrLlmRunConfig

PARTS = {"encoder": {"path": "e"}, "decoder": {"path": "d"}}


def run_config(model=None, **sections):
    values = {
        "family": "asr-llm", "model_type": "asr-llm",
        "model": {**PARTS, **(model or {})}, "data": {"train": ["x"]}, **sections,
    }  # fmt: skip
    return AsrLlmRunConfig.model_validate(values)


def flags(config):
    return tuple(
        getattr(config, f"freeze_{part}")
        for part in ("encoder", "language_model", "text_embeddings", "projector")
    )


@pytest.mark.parametrize(
    ("recipe", "expected", "adapters"),
    [
        ("projector", (True, True, True, False), False),
        ("lora", (True, True, True, False), True),
        ("full", (True, False, False, False), False),
        ("custom", (True, True, True, False), False),
    ],
)
def test_recipes_settle_what_is_frozen(recipe, expected, adapters):
    config = AsrLlmModelConfig.model_validate({**PARTS, "recipe": recipe})
    assert flags(config) == expected
    assert (config.decoder.lora is not None) == adapters
    again = AsrLlmModelConfig.model_validate(config.model_dump(mode="json"))
    assert again == config


def test_adapters_have_the_published_sizes():
    lora = AsrLlmModelConfig.model_validate(PARTS).decoder.lora
    assert (lora.rank, lora.alpha, lora.target_modules) == (64, 64, "all-linear")


LORA = {"path": "d", "lora": {}}


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"recipe": "projector", "freeze_projector": True}, "contradicts recipe 'projector'"),
        ({"recipe": "projector", "freeze_language_model": False}, "contradicts recipe"),
        ({"recipe": "lora", "freeze_language_model": False}, "contradicts recipe 'lora'"),
        ({"recipe": "full", "freeze_language_model": True}, "contradicts recipe 'full'"),
        ({"recipe": "full", "decoder": LORA}, "recipe 'full' has no adapters"),
        ({"recipe": "projector", "decoder": LORA}, "recipe 'projector' has no adapters"),
        (
            {"recipe": "custom", "decoder": LORA, "freeze_language_model": False},
            "adapters are for a base that stays",
        ),
        ({"recipe": "custom", "freeze_projector": True}, "nothing would train"),
        ({"encoder": {"path": "e", "top_layers": 2}}, "freeze_encoder is true"),
        ({"encoder": {"path": "e", "learning_rate": 1e-5}}, "nothing would read it"),
        (
            {"freeze_projector": True, "projector": {"learning_rate": 1e-3}},
            r"projector\.learning_rate is set",
        ),
        (
            {"recipe": "full", "decoder": {"path": "d", "dtype": "bfloat16"}},
            "small updates round to nothing",
        ),
        (
            {"freeze_encoder": False, "encoder": {"path": "e", "dtype": "float16"}},
            r"encoder\.dtype=float32",
        ),
        ({"projector": {"kind": "moe", "active": 5}}, "active 5 is more than experts 4"),
        ({"projector": {"kind": "qformer", "num_heads": 3}}, "no multiple of num_heads 3"),
        ({"projector": {"hidden": 3}}, "Extra inputs"),
    ],
)
def test_contradictions_are_refused(model, why):
    with pytest.raises(ValidationError, match=why):
        AsrLlmModelConfig.model_validate({**PARTS, **model})


@pytest.mark.parametrize(
    ("model", "sections", "why"),
    [
        ({"decoder": {"path": "d", "dtype": "float16"}}, {"training": {"bf16": True}}, "one kind"),
        ({"decoder": {"path": "d", "dtype": "bfloat16"}}, {"training": {"fp16": True}}, "one kind"),
        ({}, {"training": {"weight_decay": 0.1}}, "adapters without decay"),
        ({}, {"training": {"per_device_eval_batch_size": 3}}, r"data\.eval_padded_seconds"),
        (
            {},
            {
                "data": {"train": ["x"], "batches": {"batch_size": 4}},
                "training": {"per_device_train_batch_size": 3},
            },
            r"set data\.batches instead",
        ),
        (
            {"decoder": {"path": "d", "attention": "flash_attention_2"}},
            {"data": {"train": ["x"], "packing": "rows"}},
            "packing=batch",
        ),
    ],
)
def test_settings_of_a_run_that_do_not_fit_are_refused(model, sections, why):
    with pytest.raises(ValidationError, match=why):
        run_config(model, **sections)


def test_what_fits_is_accepted():
    config = run_config(
        {"recipe": "full"}, training={"weight_decay": 0.1, "learning_rate": 2e-5, "bf16": True}
    )
    assert config.model.decoder.dtype == "float32"


def test_published_presets_bind_storage_rates_and_decay():
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_run

    rates = {"projector": 1e-3, "lora": 1e-4, "full": 2e-5, "free-run": 1e-4}
    for name, rate in rates.items():
        _, config = validate_run(compose_preset(f"asr-llm/{name}", ["data.train=x"]))
        assert config.training.learning_rate == rate
        assert config.model.projector.learning_rate == 1e-3
        assert config.data.min_seconds == 0.8
        assert config.data.max_seconds == 19.0
        full = name == "full"
        assert (config.model.decoder.dtype == "float32") == full
        assert (config.training.weight_decay > 0) == full


def test_the_chain_adds_adapters_and_then_the_top_of_the_encoder():
    from voicehub.cli.compose import compose_preset
    from voicehub.cli.validate import validate_stages

    composition = compose_preset("asr-llm/chain", ["data.train=x"])
    models = [config.model for _, config in validate_stages(composition)]
    assert [stage.stage for stage in composition.stages] == ["projector", "lora", "joint"]
    assert [model.recipe for model in models] == ["projector", "lora", "lora"]
    assert [model.freeze_encoder for model in models] == [True, True, False]
    assert [model.encoder.dtype for model in models] == ["bfloat16", "bfloat16", "float32"]
    assert models[1].decoder.lora == models[2].decoder.lora

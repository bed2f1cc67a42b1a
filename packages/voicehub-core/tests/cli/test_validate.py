"""A composed configuration against the family's model: every problem names key and origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicehub.cli.compose import compose_preset
from voicehub.cli.output import UsageError
from voicehub.cli.validate import validate_run


def problem(*overrides: str, preset: str = "toy/tiny") -> UsageError:
    with pytest.raises(UsageError) as caught:
        validate_run(compose_preset(preset, ["data.train=x", *overrides]))
    return caught.value


def test_a_valid_configuration_becomes_the_familys_class(work: Path) -> None:
    spec, config = validate_run(compose_preset("toy/tiny", ["data.train=x", "resume=auto"]))
    assert spec.model_type == "toy-line"
    assert type(config).__name__ == "ToyRunConfig"
    assert config.data.scale == 2.0
    assert config.training.learning_rate == 0.01
    assert config.resume == "auto"


def test_unknown_key_of_the_command_line(work: Path) -> None:
    error = problem("training.lerning_rate=1e-3")
    assert "unknown key 'training.lerning_rate'" in str(error)
    assert "command line: training.lerning_rate=1e-3" in str(error)
    assert "Did you mean 'training.learning_rate'?" in str(error)
    assert error.problems[0]["nearest"] == "training.learning_rate"


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_every_way_of_adding_a_key_is_checked(work: Path, prefix: str) -> None:
    assert "Did you mean 'model.width'?" in str(problem(f"{prefix}model.widht=3"))


def test_unknown_top_level_key_that_belongs_elsewhere(work: Path) -> None:
    assert "'training.learning_rate' is where 'learning_rate' goes" in str(
        problem("learning_rate=1")
    )


def test_unknown_key_with_nothing_near_lists_what_is_valid(work: Path) -> None:
    assert "Valid here: activation, width." in str(problem("model.zzzzzz=1"))


def test_one_value_for_a_section_names_what_there_is_to_choose_and_to_set(work: Path) -> None:
    error = problem("training=fast")
    assert "this preset has no options of 'training' to choose from by name" in str(error)
    assert "It has data=numbers; model=small | wide. Set training.adam_beta1," in str(error)
    assert "valid dictionary" not in str(error)


@pytest.mark.parametrize(
    ("override", "near"),
    [("training.report_to=[triale]", "trial"), ("training.strategy=torhc", "torch")],
)
def test_a_dry_run_finds_names_that_no_package_offers(
    cli: Any, planted: Any, override: str, near: str
) -> None:
    planted("voicehub-trial", {"voicehub.reporters": {"trial": "nowhere:Nothing"}})
    outcome = cli("train", "toy/tiny", "data.train=x", override, "--dry-run")
    assert outcome.code == 2
    assert f"Did you mean '{near}'?" in outcome.stderr
    assert outcome.stdout == ""


def test_unknown_key_of_a_file_names_the_file(work: Path) -> None:
    file = work / "configs/experiments/run.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\ntraining:\n  max_step: 3\n")
    error = problem("+experiments=run")
    assert "unknown key 'training.max_step' (configs/experiments/run.yaml)" in str(error)
    assert "Did you mean 'training.max_steps'?" in str(error)
    assert error.problems[0]["source"] == "configs/experiments/run.yaml"


def test_unknown_key_of_a_group_file_of_the_package(work: Path, site: Path) -> None:
    (site / "toyfamily/presets/model/odd.yaml").write_text("width: 4\nwith: 5\n")
    error = problem("model=odd")
    assert "unknown key 'model.with'" in str(error)
    assert str(site / "toyfamily/presets/model/odd.yaml") in str(error)


def test_an_experiment_without_its_header_is_told_so(work: Path) -> None:
    file = work / "configs/experiments/run.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("training:\n  max_steps: 3\n")
    error = str(problem("+experiments=run"))
    assert "unknown key 'experiments'" in error
    assert "# @package _global_" in error
    assert "configs/experiments/run.yaml" in error


def test_a_wrong_type_names_key_value_and_expected_type(work: Path) -> None:
    error = str(problem("training.max_steps=many"))
    assert "'training.max_steps' = 'many'" in error
    assert "expected int" in error
    assert "command line" in error


def test_a_section_where_a_value_belongs(work: Path) -> None:
    error = str(problem("training.max_steps.deeper=1"))
    assert "'training.max_steps' = {'deeper': 1}" in error
    assert "expected int" in error


def test_a_value_where_a_section_belongs(work: Path) -> None:
    error = str(problem("data.eval=test.jsonl"))
    assert "'data.eval' = 'test.jsonl'" in error
    assert "expected dict[str, str]" in error


def test_a_value_out_of_range(work: Path) -> None:
    assert "greater than or equal to 1" in str(problem("model.width=0"))


def test_a_choice_lists_the_choices(work: Path) -> None:
    error = str(problem("model.activation=relu"))
    assert "'linear' | 'tanh'" in error and "'relu'" in error


def test_keys_inside_a_tagged_union(work: Path) -> None:
    error = str(problem("data.augment=[{kind: noise, levle: 1}]"))
    assert "unknown key 'data.augment.0.levle'" in error
    assert "Did you mean 'data.augment.0.level'?" in error
    assert "'data.augment.0.level'" in str(problem("data.augment=[{kind: noise, level: loud}]"))


def test_a_union_is_one_problem_not_one_for_each_member(work: Path) -> None:
    error = problem("resume=[1]")
    assert [item["key"] for item in error.problems] == ["resume"]


def test_contradicting_settings_are_told_by_the_model(work: Path) -> None:
    assert "choose one precision" in str(problem("training.fp16=true", "training.bf16=true"))


def test_what_is_missing_says_how_to_give_it(work: Path) -> None:
    with pytest.raises(UsageError) as caught:
        validate_run(compose_preset("toy/tiny", []))
    assert "'data.train' is required: give data.train=VALUE" in str(caught.value)
    assert len(caught.value.problems) == 1


def test_question_marks_are_required_even_with_a_default(work: Path, site: Path) -> None:
    (site / "toyfamily/presets/model/open.yaml").write_text("width: ???\n")
    assert "'model.width' is required" in str(problem("model=open"))


def test_several_problems_are_all_told(work: Path) -> None:
    error = problem("model.widht=1", "training.max_steps=x", "data.scale=big")
    assert {item["key"] for item in error.problems} == {
        "model.widht",
        "training.max_steps",
        "data.scale",
    }
    assert str(error).count("\n  - ") == 3


def test_unknown_model_type(work: Path) -> None:
    error = str(problem("model_type=toy-lime"))
    assert "toy-line" in error and "command line: model_type=toy-lime" in error


def test_family_and_model_type_must_agree(work: Path) -> None:
    assert "belongs to the family 'toy'" in str(problem("family=other"))


def test_a_preset_without_a_model_type(work: Path) -> None:
    (work / "configs").mkdir()
    (work / "configs/bare.yaml").write_text("name: bare\n")
    assert "sets no model_type" in str(problem(preset="bare"))


def test_a_setting_of_another_trainer_says_what_to_do_here(work: Path) -> None:
    message = str(problem("training.do_train=true"))
    assert "unknown key 'training.do_train'" in message
    assert "call trainer.train()" in message


def test_rules_of_freezing_and_groups_on_the_command_line(work: Path) -> None:
    overrides = [
        "data.train=x",
        "training.freeze=[encoder,{pattern:head.bias,until_step:5}]",
        "training.param_groups=[{pattern:head,lr_scale:0.1}]",
    ]
    _, config = validate_run(compose_preset("toy/tiny", overrides))
    first, second = config.training.freeze
    assert first.is_permanent and (second.pattern, second.until_step) == ("head.bias", 5)
    assert config.training.param_groups[0].lr_scale == 0.1
    error = problem("training.param_groups=[{pattern:head,lr_scal:0.1}]")
    assert "lr_scal" in str(error) and "lr_scale" in str(error)

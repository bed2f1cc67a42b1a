"""Composition with Hydra: precedence, experiments, the user's presets, and errors in our words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from voicehub.cli.compose import compose_preset
from voicehub.cli.output import UsageError
from voicehub.errors import ConfigurationError, PluginError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def configs(work: Path) -> Path:
    write(
        work / "configs/experiments/my_run.yaml",
        "# @package _global_\n"
        "defaults:\n  - override /data: my_corpus\n  - override /model: wide\n"
        "name: mine\n"
        "training:\n  learning_rate: 0.5\n  max_steps: 7\n",
    )
    write(
        work / "configs/data/my_corpus.yaml",
        "train: ${hydra:runtime.cwd}/train.jsonl\nscale: 9.0\n",
    )
    return work / "configs"


def test_a_preset_alone(work: Path) -> None:
    composed = compose_preset("toy/tiny", ["data.train=a.jsonl"])
    assert composed.values["training"]["max_steps"] == 12
    assert composed.values["training"]["learning_rate"] == 0.01  # from _base
    assert composed.values["model"] == {"width": 4}
    assert composed.values["data"] == {"train": "a.jsonl", "scale": 2.0}
    assert composed.missing == ()
    assert "hydra" not in composed.values


def test_what_must_be_given_is_missing_not_three_question_marks(work: Path) -> None:
    composed = compose_preset("toy/tiny", [])
    assert composed.missing == ("data.train",)
    assert "train" not in composed.values["data"]


def test_experiment_overrides_groups_and_loses_to_the_command_line(configs: Path) -> None:
    composed = compose_preset("toy/tiny", ["training.max_steps=3", "+experiments=my_run"])
    values = composed.values
    assert values["data"]["train"] == f"{configs.parent}/train.jsonl"  # hydra:runtime.cwd
    assert values["data"]["scale"] == 9.0  # a chosen group wins over the preset's body
    assert values["model"] == {"width": 8}
    assert values["name"] == "mine"
    assert values["training"]["learning_rate"] == 0.5  # experiment over preset
    assert values["training"]["max_steps"] == 3  # command line over experiment
    assert values["training"]["logging_steps"] == 2  # untouched base
    names = [source.path.name for source in composed.sources]
    assert names == ["_base.yaml", "tiny.yaml", "my_corpus.yaml", "wide.yaml", "my_run.yaml"]


def test_a_group_can_be_chosen_on_the_command_line(configs: Path) -> None:
    values = compose_preset("toy/tiny", ["data=my_corpus", "model=wide"]).values
    assert values["data"]["train"].endswith("/train.jsonl")
    assert values["model"] == {"width": 8}


def test_keys_that_no_file_lists_can_be_set(work: Path) -> None:
    values = compose_preset("toy/tiny", ["training.seed=1", "data.augment=[{kind: gain}]"]).values
    assert values["training"]["seed"] == 1
    assert values["data"]["augment"] == [{"kind": "gain"}]


def test_a_key_can_be_deleted(work: Path) -> None:
    assert "scale" not in compose_preset("toy/tiny", ["~data.scale"]).values["data"]


def test_user_preset_over_a_packages_preset(configs: Path) -> None:
    write(
        configs / "my/preset.yaml",
        "# Mine.\nextends: toy/tiny\ndefaults:\n  - override /data: my_corpus\n"
        "training:\n  max_steps: 99\n",
    )
    composed = compose_preset("my/preset", ["+experiments=my_run"])
    assert composed.values["training"]["max_steps"] == 7  # experiment over the user's preset
    assert composed.values["training"]["use_cpu"] is True
    assert composed.values["data"]["scale"] == 9.0
    assert "extends" not in composed.values
    assert compose_preset("my/preset", []).values["training"]["max_steps"] == 99


def test_user_preset_of_its_own(configs: Path) -> None:
    write(
        configs / "alone.yaml",
        "defaults:\n  - _self_\n  - data: my_corpus\n  - model: wide\n"
        "family: toy\nmodel_type: toy-line\n",
    )
    values = compose_preset("alone", []).values
    assert values["model"] == {"width": 8}  # the family's groups are in reach
    assert values["data"]["scale"] == 9.0


def test_a_file_named_by_its_path(work: Path) -> None:
    file = write(work / "elsewhere/config.yaml", "family: toy\nmodel_type: toy-line\nname: x\n")
    assert compose_preset(str(file), ["name=y"]).values["name"] == "y"
    assert compose_preset("elsewhere/config.yaml", []).values["name"] == "x"


def test_extends_must_name_a_packages_preset(configs: Path) -> None:
    write(configs / "a.yaml", "extends: b\n")
    write(configs / "b.yaml", "name: b\n")
    with pytest.raises(ConfigurationError, match=r"a\.yaml: 'extends: b'"):
        compose_preset("a", [])


def test_no_such_preset_names_the_nearest(work: Path) -> None:
    with pytest.raises(UsageError) as caught:
        compose_preset("toy/tinny", [])
    assert "Did you mean 'toy/tiny'?" in str(caught.value)
    assert "voicehub presets" in str(caught.value)
    with pytest.raises(UsageError, match="Did you mean 'toy/tiny'"):
        compose_preset("tory/tiny", [])


def test_parts_for_inheriting_and_groups_are_no_presets(work: Path) -> None:
    for name in ("toy/_base", "toy/model", "toy/data/numbers"):
        with pytest.raises(UsageError, match="There is no preset"):
            compose_preset(name, [])


def test_a_name_claimed_by_package_and_user_is_an_error(configs: Path) -> None:
    write(configs / "toy/tiny.yaml", "name: x\n")
    with pytest.raises(ConfigurationError, match="is both"):
        compose_preset("toy/tiny", [])


@pytest.mark.parametrize("name", ["tiny", "tiny.yaml"])
def test_a_preset_named_as_one_of_the_package_it_extends(configs: Path, name: str) -> None:
    """In ./configs, and beside it, where it is named by its path."""
    folder = configs if name == "tiny" else configs.parent
    own = write(folder / "tiny.yaml", "extends: toy/tiny\ntraining: {seed: 1}\n")
    with pytest.raises(ConfigurationError, match=r"has the name of .*my-tiny\.yaml") as caught:
        compose_preset(name, [])
    assert str(own) in str(caught.value) and "toyfamily/presets/tiny.yaml" in str(caught.value)
    own.rename(own.with_name("my-tiny.yaml"))
    assert compose_preset(f"my-{name}", []).values["training"]["seed"] == 1


def test_a_group_option_claimed_twice_is_an_error(configs: Path) -> None:
    own = write(configs / "data/numbers.yaml", "train: mine.jsonl\n")
    with pytest.raises(ConfigurationError, match="is both") as caught:
        compose_preset("toy/tiny", [])
    assert str(own) in str(caught.value)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.seed", "is not an override"),
        ("training seed=1", "is not an override"),
        ("name=a=b", "cannot be parsed"),
        ("training.seed=1,2", "starts a sweep"),
        ("+name=x", "name"),
        ("~training.nothing", "training.nothing"),
        ("model=huge", "options of 'model': small, wide"),
        ("+experiments=my_rum", "Did you mean 'experiments/my_run'"),
        ("name=${nowhere.at_all}", "not found (key 'name') (from the command line: name=$"),
    ],
)
def test_overrides_that_do_not_compose(configs: Path, override: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compose_preset("toy/tiny", [override])
    assert expected in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_file_that_is_no_yaml_is_named(configs: Path) -> None:
    broken = write(configs / "experiments/broken.yaml", "# @package _global_\na: [1\n")
    with pytest.raises(ConfigurationError, match=broken.name):
        compose_preset("toy/tiny", ["+experiments=broken"])


def test_hydra_is_left_as_it_was_found(work: Path) -> None:
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    compose_preset("toy/tiny", [])
    assert not GlobalHydra.instance().is_initialized()
    with pytest.raises(UsageError):
        compose_preset("toy/tiny", ["model=huge"])
    assert not GlobalHydra.instance().is_initialized()
    assert not HydraConfig.initialized()


def test_only_the_named_family_is_imported(work: Path, site: Path, planted) -> None:  # type: ignore[no-untyped-def]
    write(site / "explosive/__init__.py", "raise RuntimeError('imported')\n")
    write(site / "explosive/presets/big.yaml", "name: big\n")
    planted(
        "voicehub-explosive",
        {
            "voicehub.plugin_api": {"v1": "explosive"},
            "voicehub.presets": {"explosive": "explosive.presets"},
        },
    )
    compose_preset("toy/tiny", [])
    assert "explosive" not in sys.modules
    with pytest.raises(PluginError, match=r"voicehub-explosive.*RuntimeError: imported"):
        compose_preset("explosive/big", [])


def test_presets_claimed_by_two_distributions(work: Path, planted) -> None:  # type: ignore[no-untyped-def]
    planted(
        "voicehub-other",
        {
            "voicehub.plugin_api": {"v1": "other"},
            "voicehub.presets": {"toy": "other.presets"},
        },
    )
    with pytest.raises(PluginError) as caught:
        compose_preset("toy/tiny", [])
    assert "voicehub-other" in str(caught.value) and "voicehub-toy" in str(caught.value)
    assert "VOICEHUB_DISABLE_PLUGINS" in str(caught.value)

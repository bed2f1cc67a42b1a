"""Importing the package loads nothing; every documented public name resolves."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import voicehub
from voicehub.suggest import did_you_mean, nearest

HEAVY = ("torch", "numpy", "pydantic", "transformers", "hydra", "typer", "rich", "pluggy")
DOCUMENTED = {
    "voicehub": (
        "Trainer TrainingArguments PreTrainedSpeechModel PreTrainedTTSModel "
        "AutoModelForTextToSpeech AutoModelForSpeechRecognition get_training_spec "
        "list_training_specs SpeechTrainingOutput TTSTrainingOutput TrainerCallback "
        "EarlyStoppingCallback"
    ),
    "voicehub.training": "DataCollatorForTTSTraining TTSFieldSchema AutoTrainingAdapter",
    "voicehub.training.contracts": "TrainingSupport TrainingPhaseSpec TrainingContext",
    "voicehub.training.specs": "ModelTrainingSpec register_training_spec",
    "voicehub.training.strategy": "TrainingStrategy register_training_strategy",
    "voicehub.training.optimization": "OptimizerBundle SchedulerBundle",
    "voicehub.training.recipes": "TrainingAdapter",
}


def loaded_after(statement: str) -> set[str]:
    """Top-level modules of a fresh interpreter that are new after ``statement``."""
    code = (
        "import sys; before = set(sys.modules); "
        f"{statement}; import json; "
        "print(json.dumps(sorted({n for n in sys.modules if n not in before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_no_framework_and_no_plugin():
    loaded = loaded_after("import voicehub")
    assert not loaded & {*HEAVY, "importlib_metadata"}
    assert {name for name in loaded if name.startswith("voicehub")} == {
        "voicehub",
        "voicehub._lazy",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "import voicehub.training",
        "from voicehub.training.contracts import TrainingSupport, TrainingPhaseSpec",
        "from voicehub.training.contracts import TrainingContext",
        "from voicehub.training.specs import ModelTrainingSpec, register_training_spec",
        "from voicehub import get_training_spec",
        "from voicehub import PreTrainedSpeechModel, AutoModelForSpeechRecognition",
        "import voicehub.errors, voicehub.suggest, voicehub.plugins.loading",
        "from voicehub import list_training_specs; list_training_specs()",
    ],
)
def test_framework_free_names(statement):
    assert not loaded_after(statement) & {"torch", "numpy", "pydantic", "transformers"}


def test_the_check_sees_a_framework_that_is_loaded():
    assert "torch" in loaded_after("from voicehub.training import AutoTrainingAdapter")


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in DOCUMENTED.items() for name in names.split()],
)
def test_documented_names_resolve(module, name):
    owner = importlib.import_module(module)
    assert name in owner.__all__
    assert name in dir(owner)
    assert callable(getattr(owner, name))


@pytest.mark.parametrize("module", sorted(DOCUMENTED))
def test_every_exported_name_resolves(module):
    owner = importlib.import_module(module)
    for name in owner.__all__:
        assert getattr(owner, name) is not None


def test_documented_synonyms_are_the_same_class():
    from voicehub import training

    assert training.DataCollatorForTTSTraining is training.DataCollatorForAudioTraining
    assert training.TTSFieldSchema is training.AudioFieldSchema


def test_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert voicehub.__version__ == version("voicehub-core")


def test_unknown_name_is_an_attribute_error_with_the_nearest():
    with pytest.raises(AttributeError, match="Did you mean 'Trainer'"):
        voicehub.Traner  # noqa: B018
    assert not hasattr(voicehub, "__path_hooks__")


def test_nearest_ignores_case_and_separators():
    assert nearest("Learning-Rate", ["learning_rate", "lr"]) == "learning_rate"
    assert nearest("lerning_rate", ["learning_rate", "seed"]) == "learning_rate"
    assert nearest("zzz", ["learning_rate"]) is None
    assert did_you_mean("zzz", ["learning_rate"]) == ""
    assert did_you_mean("sede", ["seed"]) == " Did you mean 'seed'?"

"""Inspection loads plugins one by one and says what each is, what it cost and what it did."""

from __future__ import annotations

import sys

import pytest

from voicehub.plugins import loading
from voicehub.plugins.discovery import PluginState
from voicehub.plugins.inspection import Inspection, inspect_each

SPECS, LOSSES = "voicehub.training_specs", "voicehub.losses"
SPEC = """
from voicehub.specs.model import ModelTrainingSpec
SPEC = ModelTrainingSpec(model_type="planted", family="planted", support="native")
"""
LOSS = """
class Loss:
    @staticmethod
    def selected_kernel():
        return "c++ extension, 1 thread"
class Broken:
    @staticmethod
    def selected_kernel():
        raise OSError("no compiler")
"""


def inspection_of(name: str) -> Inspection:
    (found,) = [item for item in inspect_each() if item.entry.name == name]
    return found


def test_a_spec_shows_what_it_declares(plant):
    plant("planted", {SPECS: {"planted": "planted_specs:SPEC"}}, modules={"planted_specs": SPEC})
    found = inspection_of("planted")
    assert found.entry.state is PluginState.LOADED
    assert found.details["support"] == "native"
    assert found.details["phases"] == ["default"]
    assert found.seconds is not None
    assert found.remarks == ()


def test_what_was_loaded_before_is_described_all_the_same(plant):
    plant("planted", {SPECS: {"planted": "planted_specs:SPEC"}}, modules={"planted_specs": SPEC})
    loading.load(SPECS, "planted")
    assert inspection_of("planted").details["family"] == "planted"


def test_a_loss_shows_the_kernel_it_would_use_here(plant):
    entries = {"planted.good": "planted_loss:Loss", "planted.broken": "planted_loss:Broken"}
    plant("planted", {LOSSES: entries}, modules={"planted_loss": LOSS})
    assert inspection_of("planted.good").details == {"kernel": "c++ extension, 1 thread"}
    broken = inspection_of("planted.broken")
    assert broken.details == {"kernel": "none: OSError: no compiler"}
    assert broken.entry.state is PluginState.LOADED


def test_a_loss_tells_the_path_of_every_device(plant):
    module = """
from voicehub.kernels import Loss
LOSS = Loss("planted.plain", {"loss": abs})
"""
    plant("planted", {LOSSES: {"planted.plain": "plain_loss:LOSS"}}, modules={"plain_loss": module})
    assert {item.entry.group for item in inspect_each(groups=(LOSSES,))} == {LOSSES}
    found = inspection_of("planted.plain")
    cpu = found.details["selections"][0]
    assert (cpu["device"], cpu["path"]) == ("cpu", "torch")
    assert "no kernel of its own" in cpu["reason"]


def test_what_comes_between_is_on_no_plugins_bill(plant):
    plant(
        "planted-spec", {SPECS: {"planted": "planted_specs:SPEC"}}, modules={"planted_specs": SPEC}
    )
    plant("planted-loss", {LOSSES: {"p.l": "planted_loss:Loss"}}, modules={"planted_loss": LOSS})
    seen = []

    def between():
        seen.append(("planted_specs" in sys.modules, "planted_loss" in sys.modules))

    inspect_each(between)
    assert seen == [(True, False)]


@pytest.mark.parametrize(
    ("requirement", "state"),
    [
        ("voicehub-core>=0.1", PluginState.LOADED),
        ("voicehub_core (>=0.1)", PluginState.LOADED),
        ("voicehub-core>=99", PluginState.UNSUPPORTED),
        ('voicehub-core>=99; extra == "later"', PluginState.LOADED),
        ("voicehub-core-extras>=99", PluginState.LOADED),
    ],
)
def test_the_core_that_a_distribution_asks_for(plant, tmp_path, requirement, state):
    plant("planted", {SPECS: {"planted": "planted_specs:SPEC"}}, modules={"planted_specs": SPEC})
    metadata = next(tmp_path.rglob("planted-1.0.dist-info")) / "METADATA"
    head, _, rest = metadata.read_text().partition("\n\n")
    metadata.write_text(f"{head}\nRequires-Dist: {requirement}\n\n{rest}")
    loading.refresh()
    found = inspection_of("planted")
    assert found.entry.state is state
    assert ("voicehub-core >=99" in found.entry.reason) == (state is PluginState.UNSUPPORTED)

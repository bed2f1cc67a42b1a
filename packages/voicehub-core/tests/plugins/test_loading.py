"""Loading touches the one plugin asked for; a broken one breaks nothing but itself."""

from __future__ import annotations

import sys

import pytest

from voicehub.errors import PluginError
from voicehub.plugins import loading
from voicehub.plugins.discovery import PluginState
from voicehub.plugins.loading import PluginImportError, load, names, resolve_reference

LOSSES = "voicehub.losses"


def test_load_imports_only_the_plugin_asked_for(plant):
    plant("planted-a", {LOSSES: {"f.a": "planted_a:LOSS"}}, modules={"planted_a": "LOSS = 41"})
    plant(
        "planted-boom",
        {LOSSES: {"f.boom": "planted_boom:LOSS"}},
        modules={"planted_boom": "raise RuntimeError('no')"},
    )
    assert load(LOSSES, "f.a") == 41
    assert "planted_boom" not in sys.modules


def test_load_is_memoised(plant):
    source = "class Loss: pass\nmade = Loss()"
    plant("planted-a", {LOSSES: {"f.a": "planted_a:made"}}, modules={"planted_a": source})
    assert load(LOSSES, "f.a") is load(LOSSES, "f.a")


def test_load_follows_dotted_attributes(plant):
    source = "class Holder:\n    value = 'deep'"
    plant("planted-a", {LOSSES: {"f.a": "planted_a:Holder.value"}}, modules={"planted_a": source})
    assert load(LOSSES, "f.a") == "deep"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('its own reason')", "RuntimeError: its own reason"),
        ("import a_package_that_is_not_installed", "a_package_that_is_not_installed"),
        ("raise SystemExit(3)", "SystemExit"),
        ("def f(:", "SyntaxError"),
        ("OTHER = 1", "has no attribute 'LOSS'"),
    ],
)
def test_a_broken_plugin_is_an_error_with_distribution_and_reason(plant, source, reason):
    plant(
        "planted-boom",
        {LOSSES: {"f.boom": "planted_boom:LOSS"}},
        version="3.1",
        modules={"planted_boom": source},
    )
    with pytest.raises(PluginImportError) as caught:
        load(LOSSES, "f.boom")
    assert isinstance(caught.value, ImportError)
    assert "planted-boom 3.1" in str(caught.value)
    assert reason in str(caught.value)
    with pytest.raises(PluginError, match="planted-boom"):  # And again, from memory.
        load(LOSSES, "f.boom")


def test_broken_plugins_are_reported_beside_working_ones(plant):
    plant("planted-a", {LOSSES: {"f.a": "planted_a:LOSS"}}, modules={"planted_a": "LOSS = 1"})
    plant(
        "planted-boom",
        {LOSSES: {"f.boom": "planted_boom:LOSS"}},
        modules={"planted_boom": "raise RuntimeError('its own reason')"},
    )
    inspected = loading.inspect([LOSSES])
    untouched = {item.name: item.state for item in inspected if item.name.startswith("f.")}
    assert untouched == {"f.a": PluginState.AVAILABLE, "f.boom": PluginState.AVAILABLE}
    report = {item.name: item for item in loading.inspect([LOSSES], load_them=True)}
    assert report["f.a"].state is PluginState.LOADED
    assert report["f.boom"].state is PluginState.BROKEN
    assert report["f.boom"].distribution == "planted-boom"
    assert "its own reason" in report["f.boom"].reason


def test_conflict_is_an_error_before_any_import(plant):
    boom = "raise RuntimeError('no')"
    plant("planted-a", {LOSSES: {"f.x": "planted_a:L"}}, modules={"planted_a": boom})
    plant("planted-b", {LOSSES: {"f.x": "planted_b:L"}}, modules={"planted_b": boom})
    with pytest.raises(PluginError, match="planted-a and planted-b"):
        load(LOSSES, "f.x")
    assert not {"planted_a", "planted_b"} & set(sys.modules)


def test_unsupported_api_is_an_error_before_any_import(plant):
    plant(
        "planted-new",
        {LOSSES: {"f.new": "planted_new:L"}},
        api="v2",
        modules={"planted_new": "L = 1"},
    )
    with pytest.raises(PluginError, match=r"plugin API v2; this VoiceHub supports v1"):
        load(LOSSES, "f.new")
    assert "planted_new" not in sys.modules


def test_disabled_plugin_says_what_disabled_it(plant, monkeypatch):
    plant("planted-a", {LOSSES: {"f.a": "planted_a:L"}}, modules={"planted_a": "L = 1"})
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGINS", "planted-a")
    with pytest.raises(PluginError, match="VOICEHUB_DISABLE_PLUGINS"):
        load(LOSSES, "f.a")


def test_unknown_name_suggests_the_nearest(plant):
    plant("planted-a", {LOSSES: {"vits.alignment": "planted_a:L"}})
    with pytest.raises(PluginError, match=r"Did you mean 'vits\.alignment'"):
        load(LOSSES, "vits.aligment")
    assert "vits.alignment" in names(LOSSES)


def test_resolve_reference_accepts_a_module_and_names_failures():
    assert resolve_reference("json:decoder.JSONDecoder").__name__ == "JSONDecoder"  # type: ignore[attr-defined]
    assert resolve_reference("json") is sys.modules["json"]
    with pytest.raises(ImportError, match="Could not resolve training adapter factory"):
        resolve_reference("no_such_module_here:f", what="training adapter factory")

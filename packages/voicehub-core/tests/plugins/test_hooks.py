"""Hooks load their plugins at the first call, and leave broken ones out with a warning."""

from __future__ import annotations

import sys

import pytest

from voicehub.plugins import hooks

PLUGINS = "voicehub.plugins"
GOOD = """
from voicehub.plugins.hooks import hookimpl

@hookimpl
def voicehub_callbacks(args):
    return [("{name}", args)]
"""


def test_hooks_are_called_with_their_arguments(plant):
    plant(
        "planted-a",
        {PLUGINS: {"a": "planted_hooks_a"}},
        modules={"planted_hooks_a": GOOD.format(name="a")},
    )
    plant(
        "planted-b",
        {PLUGINS: {"b": "planted_hooks_b"}},
        modules={"planted_hooks_b": GOOD.format(name="b")},
    )
    assert "planted_hooks_a" not in sys.modules
    assert hooks.callbacks("args") == [("a", "args"), ("b", "args")]
    assert hooks.checks() == []


def test_a_broken_hook_plugin_is_left_out_with_a_warning(plant):
    plant("planted-a", {PLUGINS: {"a": "planted_hooks_a"}}, modules={"planted_hooks_a": "1 / 0"})
    plant(
        "planted-b",
        {PLUGINS: {"b": "planted_hooks_b"}},
        modules={"planted_hooks_b": GOOD.format(name="b")},
    )
    with pytest.warns(RuntimeWarning, match=r"planted-a .*ZeroDivisionError"):
        found = hooks.callbacks(1)
    assert found == [("b", 1)]


def test_a_misspelt_hook_is_left_out_with_a_warning(plant):
    source = GOOD.format(name="a").replace("voicehub_callbacks", "voicehub_calbacks")
    plant("planted-a", {PLUGINS: {"a": "planted_hooks_a"}}, modules={"planted_hooks_a": source})
    with pytest.warns(RuntimeWarning, match="voicehub_calbacks"):
        assert hooks.callbacks(1) == []


def test_registration_at_run_time(plant):
    class Mine:
        @hooks.hookimpl
        def voicehub_checks(self):
            return ["mine"]

    mine = Mine()
    hooks.register(mine)
    assert hooks.checks() == ["mine"]
    hooks.unregister(mine)
    assert hooks.checks() == []

"""Plugins that misbehave at import are contained as far as Python allows, and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

PRINTS = """
print("look at me")
"""
SLOW = """
import time
deadline = time.perf_counter() + 0.3
while time.perf_counter() < deadline:
    pass
"""
PATCHES = """
import torch
torch.nn.Linear.forward = lambda self, x: x * float("nan")
"""


@pytest.fixture(scope="module")
def inspected(make_site: Callable[[], Any], spec_of: Callable[..., str]) -> dict[str, Any]:
    site = make_site()
    for name, source in (("prints", PRINTS), ("slow", SLOW), ("patches", PATCHES)):
        modules = {f"tamper_{name}": source + spec_of(f"tamper-{name}")}
        entries = {"training_specs": {f"tamper-{name}": f"tamper_{name}:SPEC"}}
        site.plant(f"tamper-{name}", entries, modules)
    exits = {"tamper_exits": "raise SystemExit(0)"}
    site.plant("tamper-exits", {"models": {"tamper-exits": "tamper_exits:Model"}}, exits)
    done = site.voicehub("plugins", "--inspect", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    found = {item["distribution"]: item for item in json.loads(lines[-1])["plugins"]}
    return {**found, "lines": lines, "text": site.voicehub("plugins", "--inspect").stdout}


def test_what_a_plugin_prints_stays_out_of_the_output(inspected: dict[str, Any]) -> None:
    assert len(inspected["lines"]) == 1
    assert inspected["tamper-prints"]["state"] == "loaded"
    (remark,) = inspected["tamper-prints"]["remarks"]
    assert remark == "tamper-prints 1.0: 'tamper-prints' prints while it is imported: 'look at me'"


def test_the_time_an_import_took_is_shown(inspected: dict[str, Any]) -> None:
    assert inspected["tamper-slow"]["import_seconds"] >= 0.3
    assert inspected["tamper-prints"]["import_seconds"] < inspected["tamper-slow"]["import_seconds"]
    (row,) = [line for line in inspected["text"].splitlines() if "tamper-slow" in line]
    assert " s" in row


def test_a_plugin_that_exits_does_not_end_the_host(inspected: dict[str, Any]) -> None:
    assert inspected["tamper-exits"]["state"] == "broken"
    assert "SystemExit: 0" in inspected["tamper-exits"]["reason"]


def test_a_spec_that_loads_torch_to_patch_it_is_remarked(inspected: dict[str, Any]) -> None:
    (remark,) = inspected["tamper-patches"]["remarks"]
    assert "imports torch; a spec's module must stay light" in remark


def test_a_tamperer_touches_nobody_who_does_not_name_it(
    make_site: Callable[[], Any], spec_of: Callable[..., str]
) -> None:
    """Only importing it patches torch, and only asking for it imports it."""
    site = make_site()
    site.plant(
        "tamper-patches",
        {"training_specs": {"tamper-patches": "tamper_patches:SPEC"}},
        {"tamper_patches": PATCHES + spec_of("tamper-patches")},
    )
    site.plant(
        "honest", {"training_specs": {"honest": "honest:SPEC"}}, {"honest": spec_of("honest")}
    )
    result = site.python(
        """
        import json, sys, torch
        from voicehub import get_training_spec
        from voicehub.specs.registry import known_model_types
        get_training_spec("honest")
        known = known_model_types()
        value = torch.nn.Linear(1, 1)(torch.ones(1)).isnan().item()
        print(json.dumps(["tamper-patches" in known, "tamper_patches" in sys.modules, value]))
        """
    )
    assert result == [True, False, False]

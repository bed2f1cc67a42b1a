"""Many kinds of broken plugins at once: each is reported with its distribution and the reason,
and everything else works."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

SPECS, ADAPTERS, MODELS, PRESETS = "training_specs", "adapter_factory", "models", "presets"
COMMANDS, HOOKS, LOSSES, STRATEGIES = "commands", "plugins", "losses", "strategies"


@dataclass
class Fault:
    """A distribution that is broken in one way, and words that its report must hold."""

    name: str
    group: str
    source: str | None
    words: tuple[str, ...]
    state: str = "broken"
    entry: str = "SPEC"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def distribution(self) -> str:
        return f"fault-{self.name}"

    @property
    def module(self) -> str:
        return f"fault_{self.name.replace('-', '_')}"


FAULTS = [
    Fault("raises", SPECS, "raise RuntimeError('no luck')", ("RuntimeError", "no luck")),
    Fault("dependency", SPECS, "import surely_missing", ("No module named 'surely_missing'",)),
    Fault("syntax", SPECS, "def f(:\n", ("SyntaxError",)),
    Fault("exits", SPECS, "import sys; sys.exit(3)", ("SystemExit", "3")),
    Fault("base", SPECS, "class Odd(BaseException): ...\nraise Odd('odd')", ("Odd", "odd")),
    Fault("attribute", SPECS, "OTHER = 1", ("AttributeError", "SPEC")),
    Fault("no-module", SPECS, None, ("No module named 'fault_no_module'",)),
    Fault("type", SPECS, "SPEC = {'model_type': 'x'}", ("must be a ModelTrainingSpec", "dict")),
    Fault(
        "invalid",
        SPECS,
        "from voicehub.specs.model import ModelTrainingSpec\n"
        "SPEC = ModelTrainingSpec(model_type='fault-invalid', family='f', support='natve')",
        ("RecipeError", "Did you mean 'native'"),
    ),
    Fault("recursion", SPECS, "def f(): f()\nf()", ("RecursionError",)),
    Fault("newer", SPECS, "X", ("plugin API v9", "supports v1"), "unsupported",
          options={"api": "v9"}),
    Fault("unstated", SPECS, "X", ("states no plugin API version",), "unsupported",
          options={"api": None}),
    Fault("range", SPECS, "X", ("needs voicehub-core >=99", "is installed"), "unsupported",
          options={"requires": "voicehub-core>=99"}),
    Fault("adapter", ADAPTERS, "raise ValueError('bad adapter')", ("ValueError", "bad adapter")),
    Fault("model", MODELS, "import surely_missing", ("surely_missing",)),
    Fault("presets", PRESETS, None, ("No module named 'fault_presets'",), entry=""),
    Fault("command", COMMANDS, "1 / 0", ("ZeroDivisionError",)),
    Fault("hooks", HOOKS, "raise OSError('hooks')", ("OSError", "hooks"), entry=""),
    Fault("loss", LOSSES, "from voicehub import nothing_of_that_name", ("nothing_of_that_name",)),
    Fault("strategy", STRATEGIES, "assert False, 'strategy'", ("AssertionError", "strategy")),
]  # fmt: skip


@pytest.fixture(scope="module")
def site(make_site: Callable[[], Any], spec_of: Callable[..., str]) -> Any:
    """All faults, two distributions in conflict, and a sound one."""
    planted = make_site()
    for fault in FAULTS:
        value = f"{fault.module}:{fault.entry}" if fault.entry else fault.module
        modules = {} if fault.source is None else {fault.module: fault.source}
        planted.plant(
            fault.distribution, {fault.group: {fault.distribution: value}}, modules, **fault.options
        )
    for name in ("fault-left", "fault-right"):
        planted.plant(name, {SPECS: {"fault-contested": "never_loaded:SPEC"}})
    planted.plant(
        "sound",
        {
            SPECS: {"sound": "sound_specs:SPEC"},
            HOOKS: {"sound": "sound_hooks"},
            MODELS: {"sound": "sound_model:Model"},
        },
        {
            "sound_specs": spec_of("sound", factory="sound_adapter:Adapter"),
            "sound_adapter": "from voicehub.adapters.base import TrainingAdapter as Adapter",
            "sound_model": "Model = int",
            "sound_hooks": """
                from voicehub.plugins.hooks import hookimpl
                @hookimpl
                def voicehub_checks():
                    return ["sound"]
                """,
        },
    )
    return planted


@pytest.fixture(scope="module")
def inspected(site: Any) -> dict[str, dict[str, Any]]:
    """What ``voicehub plugins --inspect --json`` says, by distribution and group."""
    done = site.voicehub("plugins", "--inspect", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    items = json.loads(done.stdout.splitlines()[-1])["plugins"]
    return {f"{item['distribution']}:{item['group']}": item for item in items}


def test_there_are_twenty_kinds_and_more() -> None:
    assert len({fault.name for fault in FAULTS}) >= 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_is_reported_with_distribution_and_reason(
    inspected: dict[str, dict[str, Any]], fault: Fault
) -> None:
    item = inspected[f"{fault.distribution}:voicehub.{fault.group}"]
    assert item["state"] == fault.state
    assert f"{fault.distribution} 1.0" in item["reason"]
    for word in fault.words:
        assert word in item["reason"]


def test_a_conflict_names_both_and_the_way_out(inspected: dict[str, dict[str, Any]]) -> None:
    for name in ("fault-left", "fault-right"):
        item = inspected[f"{name}:voicehub.training_specs"]
        assert item["state"] == "conflict"
        assert "fault-left and fault-right both claim" in item["reason"]
        assert "VOICEHUB_DISABLE_PLUGINS=fault-right" in item["reason"]


def test_the_sound_one_is_loaded(inspected: dict[str, dict[str, Any]]) -> None:
    for group in (SPECS, HOOKS, MODELS):
        item = inspected[f"sound:voicehub.{group}"]
        assert (item["state"], item["reason"]) == ("loaded", "")
        assert item["import_seconds"] >= 0
    assert inspected["sound:voicehub.training_specs"]["details"] == {
        "family": "sound",
        "phases": ["default"],
        "support": "native",
        "task": "text-to-speech",
    }


def test_the_rest_of_the_library_works_beside_them(site: Any) -> None:
    """The sound family is set up, the hooks are called, and the lists name it, in one process."""
    result = site.python(
        """
        import json, sys, warnings
        warnings.simplefilter("ignore")
        from voicehub import get_training_spec, list_training_specs
        from voicehub.plugins import hooks
        spec = get_training_spec("sound")
        listed = [item.model_type for item in list_training_specs()]
        checks = hooks.checks()
        from torch import nn
        from voicehub.training import AutoTrainingAdapter
        model = nn.Linear(2, 2)
        model.model = nn.Linear(2, 2)
        adapter = AutoTrainingAdapter.from_model(model, spec=spec)
        adapter.setup()
        print(json.dumps({
            "listed": "sound" in listed, "faults": [n for n in listed if n.startswith("fault")],
            "checks": checks, "routes": len(adapter.routes["default"]),
        }))
        """
    )
    assert result == {"listed": True, "faults": [], "checks": ["sound"], "routes": 2}


@pytest.mark.parametrize("name", ["raises", "exits", "base", "newer", "range"])
def test_asking_for_a_broken_one_says_whose_it_is(site: Any, name: str) -> None:
    message = site.python(
        f"""
        import json
        from voicehub import get_training_spec
        from voicehub.errors import PluginError
        try:
            get_training_spec("fault-{name}")
        except PluginError as error:
            print(json.dumps(str(error)))
        """
    )
    assert f"fault-{name} 1.0" in message


def test_commands_of_ours_run_beside_them(site: Any) -> None:
    for arguments in (("--help",), ("plugins",), ("presets",), ("doctor", "--json")):
        done = site.voicehub(*arguments)
        assert "Traceback" not in done.stderr, done.stderr[-2000:]
        assert done.returncode in (0, 1), (arguments, done.stdout[-1000:], done.stderr[-1000:])


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("def voicehub_checks():\n    raise ValueError('at call')", "ValueError: at call"),
        ("def voicehub_checks(nonsense):\n    return []", "nonsense"),
    ],
)
def test_a_hook_that_fails_is_left_out_by_name(
    make_site: Callable[[], Any], hook: str, words: str
) -> None:
    site = make_site()
    head = "from voicehub.plugins.hooks import hookimpl\n@hookimpl\n"
    site.plant("bad-hook", {HOOKS: {"bad-hook": "bad_hook"}}, {"bad_hook": head + hook})
    good = head + "def voicehub_checks():\n    return ['good']"
    site.plant("good-hook", {HOOKS: {"good-hook": "good_hook"}}, {"good_hook": good})
    found, warned = site.python(
        """
        import json, warnings
        from voicehub.plugins import hooks
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = hooks.checks()
        print(json.dumps([found, [str(item.message) for item in caught]]))
        """
    )
    assert found == ["good"]
    (warning,) = warned
    assert "bad-hook" in warning
    assert words in warning


def test_presets_whose_package_exits_do_not_end_the_host(make_site: Callable[[], Any]) -> None:
    site = make_site()
    site.plant("exiting", {PRESETS: {"exiting": "exiting.presets"}})
    (site.directory / "exiting").mkdir()
    (site.directory / "exiting" / "__init__.py").write_text("import sys; sys.exit(5)")
    done = site.voicehub("train", "exiting/tiny")
    assert done.returncode == 1
    assert "Presets of 'exiting' (exiting 1.0)" in done.stderr


def test_damaged_metadata_hides_its_own_distribution_alone(
    make_site: Callable[[], Any], spec_of: Callable[..., str]
) -> None:
    site = make_site()
    site.plant("fault-damaged", {SPECS: {"lost": "never_loaded:SPEC"}}, damaged=True)
    site.plant("sound", {SPECS: {"sound": "sound_specs:SPEC"}}, {"sound_specs": spec_of("sound")})
    done = site.voicehub("plugins")  # torch itself does not import beside such metadata
    assert done.returncode == 0, done.stderr
    assert "fault_damaged-1.0.dist-info" in done.stderr
    assert "sound" in done.stdout

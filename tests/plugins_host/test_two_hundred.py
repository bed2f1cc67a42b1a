"""With two hundred families installed, one is set up and the others are not even imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NOBODY = "raise RuntimeError('imported, which it must not be')"
HOOKS = """
from voicehub.plugins.hooks import hookimpl
@hookimpl
def voicehub_checks():
    return [{number}]
"""


@pytest.fixture(scope="module")
def site(make_site: Callable[[], Any], spec_of: Callable[..., str]) -> Any:
    """Each has a spec, an adapter, a model, presets and a command; number 77 alone can import."""
    planted = make_site()
    for number in range(200):
        name = f"family-{number}"
        entries = {
            "training_specs": {name: f"f{number}_specs:SPEC"},
            "adapter_factory": {name: f"f{number}_adapter:Adapter"},
            "models": {name: f"f{number}_model:Model"},
            "presets": {name: f"f{number}_presets"},
            "commands": {name: f"f{number}_command:app"},
            "plugins": {name: f"f{number}_hooks"},
        }
        sources = dict.fromkeys(
            (f"f{number}_{part}" for part in ("specs", "adapter", "model", "presets", "command")),
            NOBODY,
        )
        if number == 77:
            sources["f77_specs"] = spec_of(name)
            sources["f77_adapter"] = (
                "from voicehub.adapters.base import TrainingAdapter\n"
                "class Adapter(TrainingAdapter): ..."
            )
        sources[f"f{number}_hooks"] = HOOKS.format(number=number)
        planted.plant(name, entries, sources)
    return planted


def test_setting_up_one_family_imports_that_one(site: Any) -> None:
    result = site.python(
        """
        import json, re, sys
        from torch import nn
        from voicehub import get_training_spec
        from voicehub.training import AutoTrainingAdapter
        spec = get_training_spec("family-77")
        model = nn.Linear(2, 2)
        model.model = nn.Linear(2, 2)
        adapter = AutoTrainingAdapter.from_model(model, spec=spec)
        adapter.setup()
        planted = sorted(name for name in sys.modules if re.fullmatch(r"f\\d+_.*", name))
        print(json.dumps([type(adapter).__name__, planted]))
        """
    )
    assert result == ["Adapter", ["f77_adapter", "f77_specs"]]


def test_listing_and_help_import_none(site: Any) -> None:
    for arguments in (("plugins",), ("--help",)):
        done = site.voicehub(*arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "family-199" in done.stdout
        assert "must not be" not in done.stdout + done.stderr


def test_hooks_load_the_hook_modules_alone(site: Any) -> None:
    result = site.python(
        """
        import json, re, sys
        from voicehub.plugins import hooks
        found = hooks.checks()
        other = [n for n in sys.modules if re.fullmatch(r"f\\d+_(?!hooks).*", n)]
        print(json.dumps([len(found), other]))
        """
    )
    assert result == [200, []]

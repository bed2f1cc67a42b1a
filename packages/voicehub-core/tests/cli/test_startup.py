"""Starting up imports no heavy library and no plugin; the time it takes is measured elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# pydantic is not among them: newer releases of typer import it themselves.
HEAVY = ("torch", "numpy", "hydra", "omegaconf", "yaml", "safetensors", "toyfamily")
PROBE = """
import json, sys
from voicehub.cli.app import run
code = run(sys.argv[1:])
heavy = sorted({name.split(".")[0] for name in sys.modules} & set(%r))
print(json.dumps({"code": code, "heavy": heavy}))
"""


@pytest.fixture
def probe(
    site: Path, work: Path, child_environment: dict[str, str]
) -> Callable[..., tuple[int, list[str], str]]:
    """Run a command line in a fresh process; its exit code, heavy imports and output."""

    def look(*arguments: str) -> tuple[int, list[str], str]:
        done = subprocess.run(
            [sys.executable, "-c", PROBE % (HEAVY,), *arguments],
            cwd=work,
            env=child_environment,
            capture_output=True,
            text=True,
            check=True,
        )
        *output, last = done.stdout.splitlines()
        answer = json.loads(last)
        return answer["code"], answer["heavy"], "\n".join(output)

    return look


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("plugins",),
        ("plugins", "--json"),
        ("train", "--help"),
        ("transcribe", "--help"),
        ("checkpoint", "--help"),
        ("checkpoint", "show", "nowhere"),
        ("nonsense",),
    ],
)
def test_nothing_heavy_is_imported(
    probe: Callable[..., tuple[int, list[str], str]], arguments: tuple[str, ...]
) -> None:
    _, heavy, _ = probe(*arguments)
    assert heavy == []


def test_help_names_the_commands_of_plugins_with_their_distribution(
    probe: Callable[..., tuple[int, list[str], str]],
) -> None:
    code, _heavy, text = probe("--help")
    assert code == 0
    assert "toy" in text and "voicehub-toy 1.2" in text
    for name in ("train", "eval", "transcribe", "checkpoint", "plugins", "doctor", "presets"):
        assert name in text


def test_the_commands_own_help_imports_that_plugin_alone(
    probe: Callable[..., tuple[int, list[str], str]], site: Path, planted: Callable[..., None]
) -> None:
    (site / "explosive.py").write_text("raise RuntimeError('imported')\n")
    planted(
        "voicehub-explosive",
        {
            "voicehub.plugin_api": {"v1": "explosive"},
            "voicehub.commands": {"explosive": "explosive:app"},
        },
    )
    code, heavy, text = probe("toy", "--help")
    assert code == 0
    assert heavy == ["toyfamily"]
    assert "Commands of the toy family." in text and "crash" in text
    assert "completion" not in text
    code, heavy, text = probe("--help")
    assert code == 0 and "explosive" in text


def test_presets_are_listed_without_hydra_or_torch(
    probe: Callable[..., tuple[int, list[str], str]],
) -> None:
    code, heavy, text = probe("presets", "toy")
    assert code == 0
    assert heavy == ["toyfamily"]  # its folder is asked for, so its parent package runs
    assert "A line of four numbers, trained in a second." in text


def test_a_dry_run_composes_without_torch(
    probe: Callable[..., tuple[int, list[str], str]],
) -> None:
    code, heavy, _ = probe("train", "toy/tiny", "data.train=x", "--dry-run")
    assert code == 0
    assert "torch" not in heavy and "hydra" in heavy

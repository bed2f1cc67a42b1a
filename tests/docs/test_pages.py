"""Every block of every page is run, executed or parsed; every relative link leads somewhere."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_server import RUN, run_script
from packaging.requirements import Requirement
from projects import forget_projects, install_project, project_path
from snippets import Snippet, commands, extract

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("README.md", "CONTRIBUTING.md", "packages/*/README.md", "plugins/*/README.md")
PAGES = sorted(path for pattern in (*PATTERNS, "docs/**/*.md") for path in ROOT.glob(pattern))
PLAIN_TEXT = {"text", "csv", "tsv", "diff", "ini"}
SHELL = {"bash", "sh", "shell", "console"}

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES]
)


@pytest.fixture
def tried(workspace: Path) -> Iterator[Path]:
    """The directory of a page; what the page installed from it is forgotten afterwards."""
    yield workspace
    forget_projects(workspace)


@every_page
def test_blocks(page: Path, tried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one directory and one Python namespace a page."""
    monkeypatch.chdir(tried)
    namespace: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    for snippet in extract(page):
        if snippet.language in SHELL:
            for command in commands(snippet):
                check_command(snippet, command, monkeypatch)
        elif snippet.language in {"python", "setup"}:
            execute(snippet, namespace)
        elif snippet.language in PARSERS:
            parse(snippet)
        else:
            assert snippet.language in PLAIN_TEXT, (
                f"{snippet.where}: no check for {snippet.language!r} blocks"
            )


@every_page
def test_relative_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def execute(snippet: Snippet, namespace: dict[str, Any]) -> None:
    # Blank lines in front make the line numbers of a traceback those of the page.
    code = compile("\n" * snippet.line + snippet.text, str(snippet.path), "exec")
    exec(code, namespace)


def check_command(snippet: Snippet, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what is ours; of what would install or clone, check that it names what exists."""
    program = words[0]
    if program == "voicehub":
        run_voicehub(snippet, words[1:])
    elif program == "pytest":
        run_program(snippet, [sys.executable, "-m", *words])
    elif words[:4] == ["python", "-m", "pip", "install"]:
        install(snippet, words[4:], monkeypatch)
    elif words[:2] == ["pip", "install"]:
        install(snippet, words[2:], monkeypatch)
    elif words[:3] == ["python", "-m", "build"]:
        assert (Path(words[3]) / "pyproject.toml").is_file(), f"{snippet.where}: {words[3]}"
    elif words[:3] == ["python", "-m", "nox"]:
        check_nox(snippet, words[3:])
    elif program == "python" and words[1].endswith(".py"):
        assert (ROOT / words[1]).is_file(), f"{snippet.where}: no {words[1]}"
        help_works([sys.executable, str(ROOT / words[1]), "--help"], snippet)
    else:
        assert program in {"cd", "git", "source"}, f"{snippet.where}: no check for {program!r}"


def run_voicehub(snippet: Snippet, arguments: list[str]) -> None:
    takes_extra = arguments[0] in ("train", "launch") or arguments[:2] == ["data", "synthesize"]
    call = [*arguments, *(snippet.extra if takes_extra else ())]
    must_succeed(snippet, RUN(call))


def run_program(snippet: Snippet, command: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    must_succeed(
        snippet,
        subprocess.run(command, capture_output=True, text=True, check=False, env=environment),
    )


def must_succeed(snippet: Snippet, result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, (
        f"{snippet.where}: {' '.join(result.args)} ended with {result.returncode}:\n"
        f"{(result.stdout + result.stderr)[-3000:]}"
    )


def install(snippet: Snippet, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory, make its package importable; of requirements, look whether they exist."""
    paths = [path for word in words if (path := project_path(word)) is not None]
    for path in paths:
        install_project(path, monkeypatch)
    check_requirements(snippet, [word for word in words if project_path(word) is None])


def check_requirements(snippet: Snippet, words: list[str]) -> None:
    """Distributions of ours must exist, and so must their extras."""
    for word in words:
        if word.startswith("-"):
            continue
        requirement = Requirement(word)
        if requirement.name.startswith("voicehub"):
            places = [ROOT / room / requirement.name for room in ("packages", "plugins")]
            project = next((p / "pyproject.toml" for p in places if p.is_dir()), None)
            assert project is not None, f"{snippet.where}: there is no {requirement.name}"
            settings = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
            extras = set(settings.get("optional-dependencies", {}))
            assert requirement.extras <= extras, f"{snippet.where}: {word} has {sorted(extras)}"


def check_nox(snippet: Snippet, words: list[str]) -> None:
    sessions = {
        node.name
        for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    }
    for flag, name in itertools.pairwise(words):
        if flag == "-s":
            assert name in sessions, f"{snippet.where}: no nox session {name!r}"


def help_works(command: list[str], snippet: Snippet) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{snippet.where}: {result.stderr[-2000:]}"


def parse(snippet: Snippet) -> None:
    try:
        PARSERS[snippet.language](snippet.text)
    except Exception as error:
        raise AssertionError(f"{snippet.where}: {error}") from error


def parse_json_lines(text: str) -> None:
    for line in text.splitlines():
        json.loads(line)


PARSERS: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "jsonl": parse_json_lines,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
}


# -- how commands are run: in the server that has run all of the above -------------------------


@pytest.mark.parametrize(
    "arguments", [("presets",), ("train", "asr-ctc/tiny", "trainin.max_steps=3")]
)
def test_a_forked_command_is_the_console_script(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    forked, script = RUN(arguments), run_script(arguments)
    assert forked.returncode == script.returncode
    assert (forked.stdout, forked.stderr) == (script.stdout, script.stderr)
    assert forked.stdout or forked.stderr


def test_a_command_runs_here_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICEHUB_DISABLE_PLUGINS", "voicehub-asr-ctc")
    assert RUN(["new-plugin", "hush"]).returncode == 0
    assert list(tmp_path.iterdir())
    assert RUN(["train", "asr-ctc/tiny"]).returncode != 0
    monkeypatch.delenv("VOICEHUB_DISABLE_PLUGINS")
    again = RUN(["presets"])
    assert again.returncode == 0 and "asr-ctc/tiny" in again.stdout

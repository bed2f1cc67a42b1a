"""Everything that is done with this repository: ``python -m nox -s NAME``.

The sessions share one environment, ``.venv``, which the first of them makes; ``job_files``,
``matrix``, ``core_only`` and ``wheels`` make clean ones of their own. What each does in detail
stands in ``tools/``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import package_matrix  # noqa: E402
from dev_environment import DevEnvironment  # noqa: E402

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False


def prepare(session: nox.Session, *groups: str) -> str:
    """Bring ``.venv`` up to date and return its interpreter."""
    environment = DevEnvironment(ROOT, run=lambda command: session.run(*command, external=True))
    if not environment.ensure(*groups):
        session.log(f"{environment.directory} is up to date")
    return str(environment.python)


@nox.session
def dev(session: nox.Session) -> None:
    """Make .venv with every package editable."""
    python = prepare(session)
    session.log(f"ready: {Path(python).parent}")


@nox.session
def quickstart(session: nox.Session) -> None:
    """Speak a corpus, train a recogniser on it, evaluate, transcribe, export."""
    session.run(prepare(session), "tools/quickstart.py", *session.posargs, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, import contracts included: `nox -s tests -- -k name` picks some."""
    # The models of the tests are so small that a second thread costs more than it gives.
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    # Some hundred child processes would each compile our sources again.
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    # One process a core; the tests of one file stay together, so that they share its fixtures.
    # Files come as conftest.py has them: long ones first.
    spread = ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
    command = [prepare(session), "-m", "pytest", *spread, *session.posargs]
    session.run(*command, external=True, env=environment)


@nox.session
def bars(session: nox.Session) -> None:
    """Measure what takes longer than tests may: `nox -s bars -- NAME` picks some."""
    python = prepare(session, "bench")
    session.run(python, "tests/bars", *session.posargs, external=True)


@nox.session(venv_backend="virtualenv", reuse_venv=True)
def job_files(session: nox.Session) -> None:
    """SkyPilot and dstack read the job files that `voicehub launch` writes for them."""
    python = prepare(session)
    session.install("--no-compile", "-r", "requirements/job_files.txt")
    tools = {"VOICEHUB_JOB_TOOLS": str(Path(session.bin) / "python"), "OMP_NUM_THREADS": "1"}
    tests = "packages/voicehub-core/tests/cli/test_job_tools.py"
    session.run(python, "-m", "pytest", tests, *session.posargs, external=True, env=tools)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format and import contracts."""
    python = prepare(session)
    session.run(python, "-m", "ruff", "check", ".", external=True)
    session.run(python, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(str(Path(python).parent / "lint-imports"), external=True)


@nox.session
def typing(session: nox.Session) -> None:
    """mypy, strict, on the core."""
    session.run(prepare(session), "-m", "mypy", *session.posargs, external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site; a broken link is an error."""
    python = prepare(session, "docs")
    command = [python, "-m", "mkdocs", "build", "--strict", *session.posargs]
    session.run(*command, external=True, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def build(session: nox.Session) -> None:
    """Wheel and source distribution of every package in dist/, metadata checked."""
    python = prepare(session, "build")
    session.run(python, "tools/build_packages.py", *session.posargs, external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Every side-by-side measurement, then its page: `nox -s bench -- NAME` or `-- --quick`."""
    python = prepare(session, "bench")
    session.run(python, "benchmarks", *session.posargs, external=True)
    session.run(python, "tools/benchmarks_page.py", external=True)


def install_alone(session: nox.Session, name: str) -> None:
    """Install one package, and of ours only what it requires, not editable, with pytest."""
    folders = [str(folder) for folder in package_matrix.closure(name)]
    session.install("-r", "requirements/matrix.txt", *folders)
    session.run("python", "tools/package_matrix.py", name)


@nox.session(python=package_matrix.PYTHONS, venv_backend="virtualenv")
@nox.parametrize("package", [*package_matrix.distributions()][1:])
def matrix(session: nox.Session, package: str) -> None:
    """The core and one more package, alone in a clean environment: its tests, with the kit."""
    install_alone(session, package)
    folder = package_matrix.distributions()[package]
    session.run("python", "-m", "pytest", str(folder / "tests"), *session.posargs)


@nox.session(python=package_matrix.PYTHONS, venv_backend="virtualenv")
def core_only(session: nox.Session) -> None:
    """The core's tests without any family, transformers, peft, speechbrain or soundfile."""
    install_alone(session, "voicehub-core")
    session.run("python", "-m", "pytest", "packages/voicehub-core/tests", *session.posargs)


@nox.session(python=package_matrix.PYTHONS, venv_backend="virtualenv")
def wheels(session: nox.Session) -> None:
    """Build wheels, install them into an empty environment and use them from elsewhere."""
    session.run(prepare(session, "build"), "tools/build_packages.py", external=True)
    built = [str(path) for path in sorted((ROOT / "dist").glob("*.whl"))]
    session.install("-r", "requirements/matrix.txt", *built)
    session.run("python", "tools/try_wheels.py", *session.posargs)

"""``pytest --voicehub-family NAME``: the conformance kit as a pytest plugin.

Loaded in every pytest run of an environment with the core in it, so it imports nothing until the
option is given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_OPTION = "--voicehub-family"
_TESTS = str(Path(__file__).with_name("conformance_tests.py"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("voicehub").addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="NAME",
        help="Check that a model type, or every type of a family, holds what VoiceHub asks of one.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the kit: beside the paths that were given, or alone where none was."""
    names = config.getoption(_OPTION)
    if not names:
        return
    _check_names(names)
    given = config.args_source is config.ArgsSource.INVOCATION_DIR
    configured = config.args_source is config.ArgsSource.TESTPATHS
    if given or configured:
        config.args[:] = [_TESTS]
    elif _TESTS not in config.args:
        config.args.append(_TESTS)


def _check_names(names: Sequence[str]) -> None:
    import pytest

    from voicehub.errors import VoiceHubError
    from voicehub.testing.cases import model_types_of

    try:
        for name in names:
            model_types_of(name)
    except VoiceHubError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what held and what did not, where any check of the kit has run."""
    outcomes = sys.modules.get("voicehub.testing.outcomes")
    if outcomes is None or not outcomes.recorded():
        return
    terminalreporter.section("VoiceHub conformance")
    for line in outcomes.report(outcomes.recorded()):
        terminalreporter.write_line(line)

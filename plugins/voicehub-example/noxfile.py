"""Tests on every Python that VoiceHub supports: ``nox``, or ``nox -s tests-3.12``."""

import nox

nox.options.sessions = ["tests"]


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Install this package alone, run its tests and the conformance kit."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build what would be published."""
    session.install("build")
    session.run("python", "-m", "build")

"""Files whose names say that they hold secrets: they are sent only when that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from voicehub.cli.output import UsageError

PATTERNS = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.kdbx",
    "*.jks", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", "_netrc", ".pypirc", ".npmrc",
    ".git-credentials", ".htpasswd", ".pgpass", "credentials", "credentials.*", "secrets.*",
    "service-account*.json", "service_account*.json", "client_secret*.json", "kubeconfig",
)  # fmt: skip
HARMLESS = ("*.example", "*.sample", "*.template", "*.pub")
_SHOWN = 5


def looks_secret(name: str) -> bool:
    """Whether the last part of a path is the name of a file that usually holds a secret."""
    base = PurePosixPath(name).name.lower()
    if any(fnmatchcase(base, pattern) for pattern in HARMLESS):
        return False
    return any(fnmatchcase(base, pattern) for pattern in PATTERNS)


def refuse_secret_files(names: Iterable[str], allowed: Sequence[str], what: str) -> None:
    """Refuse to send files that look like secrets.

    Args:
        names: paths, ``/`` between their parts.
        allowed: patterns of paths, or of their last parts, that may be sent all the same.
        what: they are part of: "the project".

    Raises:
        UsageError: names them.
    """
    found = [name for name in names if looks_secret(name) and not _allowed(name, allowed)]
    if found:
        shown = ", ".join(found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise UsageError(
            f"{what} holds files that look like secrets: {shown}{more}. Nothing was sent. Name "
            "them in .gitignore, hand their values on with `train --env NAME`, or allow each with "
            "--allow-file NAME if it holds none."
        )


def _allowed(name: str, allowed: Sequence[str]) -> bool:
    base = PurePosixPath(name).name
    return any(fnmatchcase(name, one) or fnmatchcase(base, one) for one in allowed)

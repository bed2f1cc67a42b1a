"""One repository of a model hub, and the token that opens it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_hf.hub.staging import Upload

TOKEN_VARIABLE = "HF_TOKEN"
ENDPOINT_VARIABLE = "HF_ENDPOINT"
_LONGEST_MESSAGE = 400
_WORTH_ANOTHER_TRY = frozenset({408, 409, 412, 425, 429})


class Repository:
    """Made when first needed, private unless asked otherwise.

    Args:
        name: ``owner/model``, or ``model`` for the owner of the token.
        private: refuse to upload into a public repository, and make a private one.

    Raises:
        ConfigurationError: the environment holds no token.
    """

    def __init__(self, name: str, *, private: bool) -> None:
        if not _token():
            raise ConfigurationError(
                f"push_to_hub needs an access token in the environment variable {TOKEN_VARIABLE}; "
                "it is read from nowhere else and never stored."
            )
        self.name = name
        self.private = private
        self._resolved: str | None = None

    def send(self, upload: Upload) -> None:
        """Commit the files of ``upload``."""
        from huggingface_hub import CommitOperationAdd

        api = _api()
        name = self._ready(api)
        operations = [
            CommitOperationAdd(path_in_repo=remote, path_or_fileobj=str(local))
            for remote, local in upload.files()
        ]
        with _without_progress_bars():
            api.create_commit(repo_id=name, operations=operations, commit_message=upload.title)

    def _ready(self, api: Any) -> str:
        """The full name of the repository, which exists and is as private as asked for."""
        if self._resolved is None:
            url = api.create_repo(self.name, private=self.private, exist_ok=True)
            name = str(url.repo_id)
            if self.private and not api.repo_info(name).private:
                raise ConfigurationError(
                    f"the repository {name} is public. Make it private, choose another "
                    "hub_model_id, or set hub_private_repo=False to publish there"
                )
            self._resolved = name
        return self._resolved


def is_final(error: Exception) -> bool:
    """Whether the hub said no, so that asking again is no use."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return 400 <= status < 500 and status not in _WORTH_ANOTHER_TRY
    return isinstance(error, (ValueError, TypeError, FileNotFoundError))


def describe(error: Exception) -> str:
    """Kind and message in one line, without the token."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    token = _token()
    if token:
        text = text.replace(token, "(token)")
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _token() -> str:
    return os.environ.get(TOKEN_VARIABLE, "").strip()


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get(ENDPOINT_VARIABLE) or None, token=_token())


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """They would be drawn into the panel of the run."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()

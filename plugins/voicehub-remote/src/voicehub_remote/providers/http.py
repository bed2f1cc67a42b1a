"""JSON over HTTPS with a token in a header, and clear words when it fails."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from voicehub.cli.output import UsageError
from voicehub_remote.providers.contract import CredentialsError, ProviderError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LARGEST = 8 << 20
_BUSY = (429, 500, 502, 503, 504)
_LONGEST_PAUSE = 60.0


class NoAnswerError(ProviderError):
    """The request may have reached the provider, but no answer came back."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True)
class Api:
    """A REST API.

    Attributes:
        base: URL that paths are appended to; https, but for this machine itself.
        token_variable: environment variable that holds the token.
        timeout: seconds for one request.
        tries: how often a request is made where the server is busy.
        sleep: takes seconds.
    """

    base: str
    token_variable: str
    timeout: float = 30.0
    tries: int = 4
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.base)
        local = parts.hostname in _LOOPBACK
        if not (parts.scheme == "https" or (parts.scheme == "http" and local)) or not parts.netloc:
            raise UsageError(f"{self.base}: expected a URL https://..., as a token is sent there.")
        if parts.username or parts.password or parts.query:
            raise UsageError(
                f"The URL of {parts.hostname} must hold no user, password or query: the token "
                f"comes from the variable {self.token_variable}."
            )

    def url(self, path: str) -> str:
        """The URL of a path."""
        return self.base.rstrip("/") + path

    def curl(self, method: str, path: str, body: Any = None) -> str:
        """The request as a line for a shell, which fills the token in."""
        import shlex

        words = ["curl", "-X", method, "-H", "Content-Type: application/json"]
        if body is not None:
            words += ["-d", json.dumps(body)]
        header = f'-H "Authorization: Bearer ${self.token_variable}"'
        return f"{shlex.join(words)} {header} {shlex.quote(self.url(path))}"

    def request(self, method: str, path: str, body: Any = None, *, again: bool = True) -> Any:
        """The JSON that the server answers; None where it answers 404, or with nothing.

        Args:
            again: whether the request may be made twice. Where not, only an answer that says that
                nothing was done (429) is followed by another try.

        Raises:
            CredentialsError: there is no token, or it is refused.
            NoAnswerError: no answer came, or none that can be read.
            ProviderError: the server refuses; its words are in the message.
        """
        for number in range(1, self.tries + 1):
            answer = self._once(method, path, body)
            if not isinstance(answer, _Busy):
                return answer
            if number == self.tries or (answer.code != 429 and not again):
                raise ProviderError(answer.message)
            self.sleep(answer.pause if answer.pause is not None else 2.0**number)
        raise AssertionError("unreachable")

    def _once(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url(path), data, headers, method=method)
        opener = urllib.request.build_opener(_NoRedirects())
        where = f"{method} {self.url(path)}"
        try:
            with opener.open(request, timeout=self.timeout) as answer:
                text = answer.read(_LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(where, error)
        except (OSError, ValueError) as error:  # time-outs, refusals, TLS, half an answer
            reason = getattr(error, "reason", None) or error
            raise NoAnswerError(
                f"{where}: no answer ({reason}). Is the network up, and the URL right?"
            ) from None
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            raise NoAnswerError(f"{where}: the answer is no JSON: {text[:200]!r}.") from None

    def _token(self) -> str:
        token = os.environ.get(self.token_variable, "").strip()
        if not token:
            raise CredentialsError(
                f"The variable {self.token_variable} is not set. Put the provider's API key into "
                "it; it is read from nowhere else, and written down nowhere."
            )
        if not token.isascii() or any(ord(character) < 33 for character in token):
            raise CredentialsError(f"What {self.token_variable} holds cannot be a token.")
        return token

    def _refused(self, where: str, error: urllib.error.HTTPError) -> _Busy | None:
        """Raise what the answer stands for; 404 and a busy server are no errors yet."""
        said = _words(error.read(_LARGEST))
        if error.code == 404:
            return None
        if error.code in (401, 403):
            raise CredentialsError(
                f"{where}: the provider refuses the token in {self.token_variable} ({error.code}"
                f"{said}). Is it right, and may it do that?"
            )
        message = f"{where}: the provider answers {error.code}{said}."
        if error.code in _BUSY:
            return _Busy(message, error.code, _pause(error))
        raise ProviderError(message)


@dataclass(frozen=True)
class _Busy:
    """An answer after which another try may do; ``pause``, in seconds, is what it asks for."""

    message: str
    code: int
    pause: float | None


def _pause(error: urllib.error.HTTPError) -> float | None:
    text = error.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_PAUSE) if text.isdigit() else None


def _words(data: bytes) -> str:
    """What an answer says went wrong, for the end of a message."""
    text = data.decode("utf-8", errors="replace").strip()
    try:
        told = json.loads(text)
    except ValueError:
        told = text
    if isinstance(told, dict):
        told = next((told[key] for key in ("message", "error", "detail") if key in told), told)
    shown = " ".join(str(told).split())[:300].rstrip(".")
    return f": {shown}" if shown else ""

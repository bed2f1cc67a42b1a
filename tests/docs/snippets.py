"""Fenced blocks of Markdown pages, and the comments that say how to check them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)[^`]*$")
_MARKER = re.compile(r"<!--\s*snippet:\s*(?P<kind>[\w-]+)[:\s]*(?P<rest>.*?)\s*-->", re.DOTALL)

MARKERS = frozenset({"with", "setup"})
"""`with ARGUMENTS` adds to the `voicehub` command of the next block that takes them (`train`,
`launch`, or `data synthesize`); `setup: CODE` is Python that prepares what the page needs."""


class SnippetError(ValueError):
    """A block or a marker that the checks would not know what to do with."""


@dataclass(frozen=True)
class Snippet:
    """One block.

    Attributes:
        path: the page.
        line: of the opening fence, from 1.
        language: as written behind the fence, lower case.
        text: content without the fences.
        extra: words of a `with` marker above it.
    """

    path: Path
    line: int
    language: str
    text: str
    extra: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.path.name}:{self.line}"


def extract(path: Path, text: str | None = None) -> list[Snippet]:
    """All blocks of a page in order; `setup` markers come as blocks of the language ``setup``.

    Raises:
        SnippetError: a block without a language, an unknown marker, a marker with no block, or
            a fence that is never closed.
    """
    content = path.read_text(encoding="utf-8") if text is None else text
    return list(_blocks(path, content))


def _blocks(path: Path, content: str) -> Iterator[Snippet]:
    lines = content.splitlines()
    extra: tuple[str, ...] | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("<!--"):
            comment, number = _comment(path, lines, number)
            marker = _MARKER.fullmatch(comment.strip())
            if marker is None:
                continue
            kind, rest = marker["kind"], marker["rest"]
            if kind not in MARKERS:
                raise SnippetError(f"{path.name}:{number}: unknown marker {kind!r}")
            if kind == "setup":
                yield Snippet(path, number, "setup", rest.strip() + "\n")
            else:
                extra = tuple(shlex.split(rest))
            continue
        opening = _FENCE.match(line)
        if opening is None:
            if extra is not None and line.strip():
                raise SnippetError(f"{path.name}:{number + 1}: a `with` marker without a block")
            number += 1
            continue
        start = number + 1
        number = start
        while number < len(lines) and not lines[number].strip().startswith(opening["ticks"]):
            number += 1
        if number == len(lines):
            raise SnippetError(f"{path.name}:{start}: the block is never closed")
        if not opening["language"]:
            raise SnippetError(f"{path.name}:{start}: the block names no language (text is one)")
        indent = len(opening["indent"])
        body = "\n".join(content_line[indent:] for content_line in lines[start:number])
        yield Snippet(path, start, opening["language"].lower(), body + "\n", extra or ())
        extra = None
        number += 1


def _comment(path: Path, lines: list[str], number: int) -> tuple[str, int]:
    """The comment that starts at ``number``, and the line after its end."""
    start = number
    while "-->" not in lines[number]:
        number += 1
        if number == len(lines):
            raise SnippetError(f"{path.name}:{start + 1}: the comment is never closed")
    return "\n".join(lines[start : number + 1]), number + 1


def commands(snippet: Snippet) -> list[list[str]]:
    """The commands of a shell block as words, without comments and prompts.

    Raises:
        SnippetError: a line that is not a plain command.
    """
    joined = snippet.text.replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        try:
            words = shlex.split(line.removeprefix("$ "), comments=True)
        except ValueError as error:
            raise SnippetError(f"{snippet.where}: {line!r}: {error}") from None
        if not words:
            continue
        if any(word in {"|", "&&", "||", ";", ">", "&"} for word in words):
            raise SnippetError(f"{snippet.where}: one plain command a line, found {line!r}")
        found.append(words)
    return found

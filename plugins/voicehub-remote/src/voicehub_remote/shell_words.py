"""Commands as one line that can be copied into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_SPECIAL = frozenset("\"'\\$`!")


def one_line(words: Sequence[str], *, stdin: str | None = None) -> str:
    """The words as one shell line (bash, zsh); ``stdin`` is shell that writes what it reads."""
    line = " ".join(_word(word) for word in words)
    return f"{stdin} | {line}" if stdin else line


def writes(text: str) -> str:
    """Shell that writes a short text."""
    return one_line(["printf", "%s", text])


def line_by_line(lines: Sequence[str]) -> str:
    """A text file of these lines."""
    return "".join(f"{line}\n" for line in lines)


def through_sh(script: str) -> str:
    """A line for the login shell there, if that is one of the family of sh."""
    return f"exec sh -c {shlex.quote(script)}"


def through_any_shell(script: str) -> str:
    """The same for csh, fish and others, whose quotes are different: it holds nothing special."""
    text = "".join(f"\\0{ord(one):03o}" if one in _SPECIAL or one < " " else one for one in script)
    return f'exec sh -c \'eval "$(printf %b "{text}")"\''


def _word(word: str) -> str:
    if not any(ord(character) < 32 for character in word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    # Two digits always: a digit behind it would be taken for a part of the number.
    named = {"\n": "\\n", "\t": "\\t"}
    text = "".join(
        named.get(char, f"\\x{ord(char):02x}" if ord(char) < 32 else char) for char in escaped
    )
    return f"$'{text}'"

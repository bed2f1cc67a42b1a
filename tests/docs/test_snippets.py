"""The extraction of blocks: nothing on a page may escape it."""

from __future__ import annotations

from pathlib import Path

import pytest
from snippets import SnippetError, commands, extract

PAGE = Path("page.md")


def test_blocks_come_in_order_with_their_lines_and_markers() -> None:
    text = """# Title
```python
a = 1
```
<!-- an ordinary comment -->
<!-- snippet: setup:
b = 2
c = 3
-->
<!-- snippet: with training.max_steps=3 x=1 -->

```bash
voicehub train y
```
- a list
  ```json
  {"a": 1}
  ```
"""
    blocks = extract(PAGE, text)
    assert [(b.language, b.text, b.extra) for b in blocks] == [
        ("python", "a = 1\n", ()),
        ("setup", "b = 2\nc = 3\n", ()),
        ("bash", "voicehub train y\n", ("training.max_steps=3", "x=1")),
        ("json", '{"a": 1}\n', ()),
    ]
    assert blocks[0].line == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\na\n```\n", "names no language"),
        ("```python\na\n", "never closed"),
        ("<!-- snippet: skip -->\n```python\na\n```\n", "unknown marker 'skip'"),
        ("<!-- snippet: with a=1 -->\nText.\n", "without a block"),
        ("<!-- snippet: setup:\n", "never closed"),
    ],
)
def test_what_could_not_be_checked_is_an_error(text: str, message: str) -> None:
    with pytest.raises(SnippetError, match=message):
        extract(PAGE, text)


def test_commands_are_split_as_a_shell_would() -> None:
    text = "```bash\n# comment\nvoicehub train a \\\n  'b={c: d}'  # why\n\n$ cd x\n```\n"
    (block,) = extract(PAGE, text)
    assert commands(block) == [["voicehub", "train", "a", "b={c: d}"], ["cd", "x"]]


@pytest.mark.parametrize("line", ["a && b", "a | b", "echo 'unclosed"])
def test_shell_constructions_are_refused(line: str) -> None:
    (block,) = extract(PAGE, f"```bash\n{line}\n```\n")
    with pytest.raises(SnippetError):
        commands(block)

"""Output of programs as it comes, and commands as one line for a shell."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from voicehub_remote.shell_words import one_line
from voicehub_remote.streaming import LineFilter, printer, stream


def test_both_outputs_and_the_exit_code() -> None:
    out: list[bytes] = []
    err: list[bytes] = []
    script = "cat; echo aside >&2; exit 3"
    code, last = stream(
        ["sh", "-c", script], stdin=b"in", on_output=out.append, on_error=err.append
    )
    assert (code, b"".join(out), b"".join(err), last) == (3, b"in", b"aside\n", b"aside\n")


def test_an_interruption_ends_the_program(tmp_path: Path) -> None:
    broken: list[bool] = []
    told = tmp_path / "told"
    script = f"trap 'touch {told}; exit' TERM; echo first; for i in 1 2 3 4 5 6; do sleep 0.5; done"

    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream(
            ["sh", "-c", script],
            on_output=interrupt,
            on_error=lambda _: None,
            on_break=lambda: broken.append(True),
        )
    assert broken == [True] and told.exists()


def test_a_piece_may_end_within_a_character() -> None:
    to = io.StringIO()
    show = printer(to)
    for byte in "é €".encode():
        show(bytes([byte]))
    assert to.getvalue() == "é €"


def test_lines_that_nobody_needs_to_see_are_left_out() -> None:
    shown: list[bytes] = []
    lines = LineFilter(shown.append, without=b"Requirement already")
    for piece in (b"Coll", b"ecting x\nRequirement al", b"ready satisfied: y\nlast"):
        lines(piece)
    lines.end()
    assert b"".join(shown) == b"Collecting x\nlast"


@pytest.mark.parametrize(
    "word", ["plain", "two words", "it's", "a\nb", "\\n\t'", "\x07" + "1", "é", ""]
)
def test_a_line_gives_the_words_back(word: str) -> None:
    line = one_line(["printf", "%s|", word, "end"])
    assert "\n" not in line
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{word}|end|"

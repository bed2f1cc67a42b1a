"""C sources are compiled once into a cache that only their user writes to."""

from __future__ import annotations

import os
import stat
from ctypes import c_int64
from pathlib import Path

import pytest

from voicehub.kernels import CLibrary, c_library

SOURCE = "#include <stdint.h>\nint twice(int64_t x) { return (int)(2 * x); }\n"

pytestmark = pytest.mark.skipif(
    not any(map(c_library.shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(c_library.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache"


def library(folder: Path, source: str = SOURCE, function: str = "twice") -> CLibrary:
    path = folder / "twice.c"
    path.write_text(source)
    return CLibrary("twice", path, {function: (c_int64,)})


def test_a_function_is_compiled_and_called(tmp_path: Path, cache: Path) -> None:
    assert library(tmp_path).function("twice")(21) == 42
    assert [path.suffix for path in cache.iterdir()] == [".so"]
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_what_is_in_the_cache_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path).function("twice")
    monkeypatch.setattr(c_library, "_run", lambda command: "compiled again")
    assert library(tmp_path).unavailable() is None
    assert "compiled again" in (library(tmp_path, SOURCE + "//").unavailable() or "")


def test_a_damaged_library_is_made_again(tmp_path: Path, cache: Path) -> None:
    library(tmp_path).function("twice")
    (found,) = cache.iterdir()
    found.unlink()  # not in place: this process has it mapped
    found.write_bytes(b"")
    assert library(tmp_path).function("twice")(4) == 8


@pytest.mark.parametrize("quoted", ["'{}'", "{} -DNDEBUG"])
def test_cc_may_hold_arguments(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, quoted: str
) -> None:
    (compiler,) = c_library.find_compiler()
    monkeypatch.setenv("CC", quoted.format(compiler))
    assert library(tmp_path).function("twice")(4) == 8


def test_an_edit_makes_a_library_of_its_own(tmp_path: Path, cache: Path) -> None:
    library(tmp_path).function("twice")
    assert library(tmp_path, SOURCE.replace("2 *", "3 *")).function("twice")(5) == 15
    assert len(list(cache.iterdir())) == 2


def test_another_processor_makes_a_library_of_its_own(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path).function("twice")
    monkeypatch.setattr(c_library, "_processor", lambda: "flags: none")
    library(tmp_path).function("twice")
    assert len(list(cache.iterdir())) == 2


def test_a_compiler_that_lacks_the_tuning_flags_compiles_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_library, "_TUNING", (("-march=no-such-machine",), ()))
    assert library(tmp_path).function("twice")(2) == 4


@pytest.mark.parametrize(
    ("source", "said"), [("int twice(", "twice.c"), ("int thrice;", "cannot be loaded")]
)
def test_what_cannot_be_used_says_why(tmp_path: Path, source: str, said: str) -> None:
    broken = library(tmp_path, source)
    assert said in (broken.unavailable() or "")
    with pytest.raises(c_library.CLibraryError, match=said):
        broken.function("twice")


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "'no-such-compiler', is not on the path" in (library(tmp_path).unavailable() or "")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "none of cc, gcc, clang" in (library(tmp_path).unavailable() or "")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    assert "others may write to" in (library(tmp_path).unavailable() or "")


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file")
    assert c_library.CACHE_VARIABLE in (library(tmp_path).unavailable() or "")


def test_the_default_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(c_library.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert c_library.cache_directory() == tmp_path / "xdg" / "voicehub" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert c_library.cache_directory() == tmp_path / ".cache" / "voicehub" / "kernels"
    assert os.access(c_library.cache_directory(), os.W_OK)

"""Plain C, compiled on first use into a cache of the user's and loaded with ctypes.

Why C through ctypes: it compiles in about a second, needs no header of Python or torch, and one
library serves every Python and torch version. ``torch.utils.cpp_extension`` takes minutes, and a
wheel would have to be built for every platform.

Environment:
    CC: the compiler; else the first of ``cc``, ``gcc``, ``clang`` on the path.
    VOICEHUB_KERNEL_CACHE: folder of the compiled libraries; else ``voicehub/kernels`` in
        ``XDG_CACHE_HOME`` or ``~/.cache``.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CACHE_VARIABLE = "VOICEHUB_KERNEL_CACHE"

# No contraction: the same sum on every machine. Never -ffast-math: kernels test for NaN.
_FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=off")
# The first that the compiler takes.
_TUNING = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())
_SECONDS = 120


class CLibraryError(Exception):
    """The library cannot be compiled or loaded here; the message says why."""


class CLibrary:
    """One C source file as a ctypes library, made when it is first asked for.

    The file in the cache is named by a hash of the source, the flags, the compiler and the
    processor's features, so that neither an edit nor a home directory shared by unlike machines
    meets a stale one.

    Args:
        name: stem of the library's file.
        source: the C file.
        functions: argument types of each function by name; each returns a C ``int``.
    """

    def __init__(
        self, name: str, source: Path, functions: Mapping[str, Sequence[type[Any]]]
    ) -> None:
        self.name = name
        self.source = source
        self.functions = functions
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None
        self._problem: str | None = None

    def unavailable(self) -> str | None:
        """Why the library cannot be used, or None; the first call compiles it."""
        with self._lock:
            if self._library is None and self._problem is None:
                try:
                    self._library = self._load()
                except CLibraryError as error:
                    self._problem = str(error)
        return self._problem

    def function(self, name: str) -> Any:
        """A function of the library, with its argument types set.

        Raises:
            CLibraryError: the library cannot be compiled or loaded.
        """
        problem = self.unavailable()
        if problem is not None:
            raise CLibraryError(problem)
        return getattr(self._library, name)

    def _load(self) -> ctypes.CDLL:
        path = self._compiled()
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # damaged: a full disk, or a copied home directory
            path.unlink(missing_ok=True)
            path = self._compiled()
            library = None
        try:
            library = library or ctypes.CDLL(str(path))
            for name, arguments in self.functions.items():
                function = getattr(library, name)
                function.argtypes, function.restype = list(arguments), ctypes.c_int
        except (OSError, AttributeError) as error:
            raise CLibraryError(f"{path} cannot be loaded: {error}; delete it") from error
        return library

    def _compiled(self) -> Path:
        command = find_compiler()
        source = self.source.read_bytes()
        key = hashlib.sha256()
        for part in (source, _identity(command), repr((_FLAGS, _TUNING)).encode()):
            key.update(hashlib.sha256(part).digest())
        path = cache_directory() / f"{self.name}-{key.hexdigest()[:20]}.so"
        if not path.is_file():
            self._compile(command, path)
        return path

    def _compile(self, compiler: Sequence[str], path: Path) -> None:
        """Compile beside the target and rename: processes that start together do no harm."""
        descriptor, scratch = tempfile.mkstemp(suffix=".so", dir=path.parent)
        os.close(descriptor)
        try:
            for tuning in _TUNING:
                command = [*compiler, *_FLAGS, *tuning, str(self.source), "-o", scratch, "-lm"]
                problem = _run(command)
                if problem is None:
                    Path(scratch).replace(path)
                    return
        finally:
            Path(scratch).unlink(missing_ok=True)
        raise CLibraryError(
            f"{shlex.join(compiler)} does not compile {self.source.name}: {problem}"
        )


def cache_directory() -> Path:
    """The folder of compiled libraries, made if need be; nobody else may write to it.

    Raises:
        CLibraryError: it cannot be made, or it belongs to somebody else.
    """
    named = os.environ.get(CACHE_VARIABLE)
    try:
        if named:
            folder = Path(named).expanduser()
        else:
            root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
            folder = Path(root).expanduser() / "voicehub" / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except (OSError, RuntimeError) as error:
        raise CLibraryError(
            f"no folder for compiled kernels ({error}); name one that you may write to in "
            f"{CACHE_VARIABLE}"
        ) from error
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise CLibraryError(
            f"others may write to {folder}, and code is loaded from it; name a folder of your own "
            f"in {CACHE_VARIABLE}"
        )
    if not os.access(folder, os.W_OK):
        raise CLibraryError(f"{folder} cannot be written; name another in {CACHE_VARIABLE}")
    return folder


def find_compiler() -> list[str]:
    """The C compiler's path, and the arguments that ``CC`` gives it, as in ``ccache gcc``.

    Raises:
        CLibraryError: there is none.
    """
    asked = os.environ.get("CC", "").strip()
    try:
        commands = [shlex.split(asked)] if asked else [["cc"], ["gcc"], ["clang"]]
    except ValueError as error:
        raise CLibraryError(f"CC={asked!r} cannot be read as a command: {error}") from None
    for name, *arguments in commands:
        found = shutil.which(name)
        if found is not None:
            return [found, *arguments]
    if asked:
        raise CLibraryError(f"the C compiler that CC names, {commands[0][0]!r}, is not on the path")
    raise CLibraryError("no C compiler: none of cc, gcc, clang is on the path")


def _run(command: Sequence[str]) -> str | None:
    """Run the compiler; what went wrong, or None."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line] or lines or ["no message"]
    return wrong[0].strip()


def _identity(command: Sequence[str]) -> bytes:
    """What else decides the machine code: the compiler's file and the processor."""
    status = Path(command[0]).resolve().stat()
    parts = (*command, status.st_size, status.st_mtime_ns, platform.machine(), _processor())
    return repr(parts).encode()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "|".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))

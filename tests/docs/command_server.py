"""Commands of pages, each in a process of its own that need not import everything again.

One server imports torch and what the commands of the families use, and forks for every command.
Nothing that it imports starts a thread, and it does nothing else, so a child begins as a fresh
interpreter does, several seconds of CPU time earlier. Where there is no fork, `RUN` starts the
console script.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

PRELOADED = (
    "torch",
    "torch._dynamo",
    "hydra",
    "omegaconf",
    "transformers",
    "voicehub.cli.app",
    "voicehub.trainer.trainer",
    "voicehub_data.synthetic",
    "voicehub_asr_ctc.experiment",
    "voicehub_xvector.experiment",
    "voicehub_vits.experiment",
    "voicehub_codec_lm.experiment",
    "voicehub_flow.tts.experiment",
    "voicehub_asr_llm.experiment",
)


class CommandServer:
    """Runs ``voicehub`` commands, one at a time."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command here and now: in this directory, with this environment.

        Raises:
            RuntimeError: the server ended.
        """
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            atexit.register(self.close)
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder) / name for name in ("stdout", "stderr")]
            request = {
                "arguments": list(arguments),
                "directory": str(Path.cwd()),
                "environment": {**os.environ, "OMP_NUM_THREADS": "1"},
                "outputs": [str(path) for path in outputs],
            }
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
            if not answer:
                raise RuntimeError(f"the command server ended with {self._server.wait()}")
            texts = [path.read_text(encoding="utf-8") for path in outputs]
        return subprocess.CompletedProcess(["voicehub", *arguments], int(answer), *texts)

    def close(self) -> None:
        """End the server."""
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server = None


def run_script(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the console script in a new interpreter."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "voicehub"), *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


RUN: Callable[[Sequence[str]], subprocess.CompletedProcess[str]] = (
    CommandServer().run if hasattr(os, "fork") else run_script
)


class Exit:
    """Ends a process when all else that is done at exit is done.

    The interpreter would go on to take apart all that was imported: 0.4 s of CPU time.
    """

    status: int = 0

    def __call__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.status)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Fork for every request; a child leaves by ``SystemExit``."""
    exit_ = Exit()
    atexit.register(exit_)  # the first that is registered is the last that is called
    gc.disable()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # no child looks through, and so copies, what was imported
    gc.enable()
    for line in requests:
        child = os.fork()
        if child == 0:
            begin(json.loads(line), exit_)
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def begin(request: dict[str, Any], exit_: Exit) -> None:
    """In the child: become the console script, and end with it."""
    exit_.status = 1  # of an exception that nobody expects
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request["outputs"], 1):
        os.dup2(os.open(path, flags), number)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    own = str(Path(__file__).resolve().parent)
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    kept = [path for path in sys.path if path not in (own, *added)]
    sys.path[:] = [*added, *kept]
    sys.argv[:] = ["voicehub", *request["arguments"]]
    import torch

    from voicehub.cli.app import main

    torch.set_num_threads(1)
    try:
        sys.exit(main())
    except SystemExit as end:
        exit_.status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)

"""How many processes where, as a plan, and the torchrun command that it is; and back again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voicehub.cli.output import UsageError
from voicehub.cli.run_record import is_credential

MODULE = "voicehub"
_ENDPOINT = re.compile(r"[\w.-]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}")
# What access tokens of common services begin with.
_TOKEN = re.compile(r"\b(hf_|ghp_|github_pat_|sk-|AKIA)[A-Za-z0-9_-]{16,}")


@dataclass(frozen=True)
class LaunchPlan:
    """One ``voicehub train`` on several processes.

    Attributes:
        words: of the command behind ``voicehub``: ``train PRESET KEY=VALUE...``.
        processes: on each node.
        nodes: machines.
        endpoint: HOST:PORT where the nodes meet; needed for more than one.
        run_id: tells this run from others that meet at the same place.
        max_restarts: how often all processes are started again after one has failed.
    """

    words: tuple[str, ...]
    processes: int = 1
    nodes: int = 1
    endpoint: str | None = None
    run_id: str | None = None
    max_restarts: int = 0

    def __post_init__(self) -> None:
        if not self.words or self.words[0] != "train":
            shown = shlex.join(self.words) or "nothing"
            raise UsageError(
                f"launch starts `voicehub train`, found {shown}. Write voicehub launch --nproc 2 "
                "-- train PRESET KEY=VALUE..."
            )
        if self.nodes == 1 and self.endpoint is not None:
            raise UsageError(
                "--rdzv-endpoint is where several nodes meet; there is one (--nnodes)."
            )
        if self.endpoint is not None and not _ENDPOINT.fullmatch(self.endpoint):
            raise UsageError(f"--rdzv-endpoint {self.endpoint}: expected HOST:PORT.")

    @property
    def world_size(self) -> int:
        """Processes on all nodes."""
        return self.processes * self.nodes

    @property
    def preset(self) -> str:
        """The preset that is trained."""
        plain = [word for word in self.words[1:] if not word.startswith("-")]
        if not plain:
            raise UsageError("`train` needs a preset: voicehub launch -- train PRESET.")
        return plain[0]

    @property
    def overrides(self) -> tuple[str, ...]:
        """What is set on the command line."""
        plain = [word for word in self.words[1:] if not word.startswith("-")]
        return tuple(plain[1:])

    def with_override(self, override: str) -> LaunchPlan:
        """The same with one more setting."""
        return replace(self, words=(*self.words, override))

    def torchrun(self) -> list[str]:
        """The words of the torchrun command, the same on every node."""
        return ["torchrun", *self.options(), "-m", MODULE, *self.words]

    def options(self) -> list[str]:
        """torchrun's own options."""
        options = [f"--nnodes={self.nodes}", f"--nproc-per-node={self.processes}"]
        if self.max_restarts:
            options.append(f"--max-restarts={self.max_restarts}")
        if self.nodes == 1:
            return ["--standalone", *options]
        if self.endpoint is None:
            raise UsageError(
                f"{self.nodes} nodes must know where to meet: give --rdzv-endpoint HOST:PORT, a "
                "port of one of them that the others reach."
            )
        run_id = self.run_id or "voicehub"
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}", f"--rdzv-id={run_id}"]
        return [*options, *meeting]


def parse_torchrun(words: Sequence[str]) -> LaunchPlan:
    """The plan that a rendered command stands for.

    Args:
        words: as ``LaunchPlan.torchrun`` gives them.

    Raises:
        UsageError: it is no command that ``LaunchPlan`` renders.
    """
    if list(words[:1]) != ["torchrun"] or "-m" not in words:
        raise UsageError(f"'{shlex.join(words)}' is no torchrun command of `voicehub launch`.")
    start = list(words).index("-m")
    if list(words[start + 1 : start + 2]) != [MODULE]:
        raise UsageError(f"'{shlex.join(words)}' does not start the module {MODULE}.")
    options = dict(option.removeprefix("--").partition("=")[::2] for option in words[1:start])
    single = "standalone" in options
    return LaunchPlan(
        words=tuple(words[start + 2 :]),
        processes=int(options["nproc-per-node"]),
        nodes=int(options["nnodes"]),
        endpoint=None if single else options["rdzv-endpoint"],
        run_id=None if single else options["rdzv-id"],
        max_restarts=int(options.get("max-restarts", 0)),
    )


def refuse_secrets(words: Sequence[str]) -> None:
    """Refuse to write down a command that holds a credential.

    Raises:
        UsageError: names the setting, never its value.
    """
    for word in words:
        key, separator, value = word.lstrip("+~").partition("=")
        if separator and value and (is_credential(key) or _TOKEN.search(value)):
            raise UsageError(
                f"'{key}' holds a credential, which is never written into a command or a file. Put "
                "it into an environment variable, and name that with --env NAME."
            )
        if not separator and _TOKEN.search(word):
            raise UsageError("One of the words looks like an access token; it is not written down.")

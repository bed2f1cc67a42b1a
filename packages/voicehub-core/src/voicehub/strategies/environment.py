"""Which process of how many this is: read from the variables that launchers set.

``torchrun`` and whatever speaks its language set ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``,
``MASTER_ADDR`` and ``MASTER_PORT``. Under Slurm alone (``srun`` without torchrun) they are derived
from ``SLURM_PROCID``, ``SLURM_NTASKS``, ``SLURM_LOCALID`` and the first node of the job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from voicehub.errors import ConfigurationError

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_HOW_TO_START = (
    "Start it with `voicehub launch --nproc 2 -- train PRESET`, or with torchrun: torchrun "
    "--nproc-per-node 2 -m voicehub train PRESET training.strategy=ddp."
)


@dataclass(frozen=True)
class RankEnvironment:
    """The place of this process among all of them.

    Attributes:
        rank: number among all processes.
        world_size: how many there are.
        local_rank: number among those of this machine; it picks the device.
        address: host of rank 0.
        port: where rank 0, or the launcher, listens.
        launcher: ``torchrun``, ``slurm`` or ``variables``.
    """

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    launcher: str


def read_environment(environ: Mapping[str, str] | None = None) -> RankEnvironment | None:
    """Return the place of this process, or None where no launcher has set any variable.

    Raises:
        ConfigurationError: some of the variables are missing, or one holds nonsense (named).
    """
    values = os.environ if environ is None else environ
    if "RANK" in values or "WORLD_SIZE" in values:
        found = {name: values[name] for name in _VARIABLES if name in values}
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in values else "variables"
    elif "SLURM_PROCID" in values and "SLURM_NTASKS" in values:
        found, launcher = _from_slurm(values), "slurm"
    else:
        return None
    missing = [name for name in _VARIABLES if name not in found]
    if missing:
        raise ConfigurationError(
            f"Some variables of a launcher are set ({', '.join(sorted(found))}), but "
            f"{', '.join(missing)} is missing. {_HOW_TO_START}"
        )
    numbers = {name: _number(name, found[name]) for name in _VARIABLES if name != "MASTER_ADDR"}
    rank, world_size = numbers["RANK"], numbers["WORLD_SIZE"]
    if not 0 <= rank < world_size:
        raise ConfigurationError(f"RANK={rank} is not below WORLD_SIZE={world_size}.")
    return RankEnvironment(
        rank,
        world_size,
        numbers["LOCAL_RANK"],
        found["MASTER_ADDR"],
        numbers["MASTER_PORT"],
        launcher,
    )


def restarts() -> int:
    """How often torchrun has started this run anew after a failure."""
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0


def require_environment(strategy: str) -> RankEnvironment:
    """Return the place of this process.

    Raises:
        ConfigurationError: no launcher has set it; says how to start one.
    """
    found = read_environment()
    if found is None:
        raise ConfigurationError(
            f"The strategy '{strategy}' needs a launcher that starts the processes and sets "
            f"{', '.join(_VARIABLES)}; none of them is set. {_HOW_TO_START}"
        )
    return found


def _from_slurm(values: Mapping[str, str]) -> dict[str, str]:
    found = {
        "RANK": values["SLURM_PROCID"],
        "WORLD_SIZE": values["SLURM_NTASKS"],
        "LOCAL_RANK": values.get("SLURM_LOCALID", "0"),
    }
    address = values.get("MASTER_ADDR") or _first_host(values.get("SLURM_JOB_NODELIST", ""))
    if address:
        found["MASTER_ADDR"] = address
    job = _number("SLURM_JOB_ID", values.get("SLURM_JOB_ID", "0"))
    # Every task of a job comes to the same port, and two jobs on a node hardly ever do.
    found["MASTER_PORT"] = values.get("MASTER_PORT") or str(20000 + job % 20000)
    return found


def _first_host(nodes: str) -> str:
    """Return the first name in Slurm's list: ``gpu[07-09,12],cpu1`` gives ``gpu07``."""
    match = re.match(r"([^,\[]+)(?:\[([0-9]+)[^\]]*\])?", nodes)
    if match is None:
        return ""
    return match.group(1) + (match.group(2) or "")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r} is no number.") from None

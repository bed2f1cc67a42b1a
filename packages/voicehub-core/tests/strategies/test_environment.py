"""Who a process is, from what launchers set."""

from __future__ import annotations

import pytest

from voicehub.errors import ConfigurationError
from voicehub.strategies.environment import read_environment, require_environment, restarts
from voicehub.strategies.registry import resolve_strategy
from voicehub.trainer.arguments import TrainingArguments

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29500",
}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "70123"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SLURM, "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)


def test_what_torchrun_sets() -> None:
    place = read_environment(TORCHRUN)
    assert place is not None
    assert (place.rank, place.world_size, place.local_rank) == (3, 4, 1)
    assert (place.address, place.port, place.launcher) == ("node-a", 29500, "variables")
    launched = read_environment({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"})
    assert launched is not None and launched.launcher == "torchrun"


@pytest.mark.parametrize(
    "nodes, first",
    [
        ("gpu07", "gpu07"),
        ("gpu[07-09,12],cpu1", "gpu07"),
        ("a-1,a-2", "a-1"),
        ("rack[3]node", "rack3"),
    ],
)
def test_slurm_without_torchrun(nodes: str, first: str) -> None:
    place = read_environment({**SLURM, "SLURM_JOB_NODELIST": nodes})
    assert place is not None
    assert (place.rank, place.world_size, place.local_rank) == (5, 8, 1)
    assert (place.address, place.port, place.launcher) == (first, 20000 + 70123 % 20000, "slurm")


def test_slurm_is_a_fallback() -> None:
    place = read_environment({**SLURM, "SLURM_JOB_NODELIST": "other", **TORCHRUN})
    assert place is not None and place.address == "node-a"


def test_nothing_is_set() -> None:
    assert read_environment({}) is None
    assert restarts() == 0
    with pytest.raises(ConfigurationError, match="'ddp' needs a launcher.*torchrun"):
        require_environment("ddp")


def test_what_is_missing_or_wrong_is_named() -> None:
    without = {name: value for name, value in TORCHRUN.items() if name != "MASTER_PORT"}
    with pytest.raises(ConfigurationError, match="MASTER_PORT is missing"):
        read_environment(without)
    with pytest.raises(ConfigurationError, match="RANK='three' is no number"):
        read_environment({**TORCHRUN, "RANK": "three"})
    with pytest.raises(ConfigurationError, match="RANK=4 is not below WORLD_SIZE=4"):
        read_environment({**TORCHRUN, "RANK": "4"})


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_a_strategy_without_a_launcher_says_how_to_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}' needs a launcher"):
        resolve_strategy(None, TrainingArguments(use_cpu=True, strategy=name))


def test_an_unknown_strategy_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'fsdp'"):
        resolve_strategy(None, TrainingArguments(use_cpu=True, strategy="fsdpp"))

"""A path is chosen by device or by name; a slower one is never taken in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from voicehub.errors import ConfigurationError, PluginError
from voicehub.kernels import KernelChoice, KernelPath, Loss, load_loss
from voicehub.kernels.selection import VARIABLE, overrides

LOSSES = "voicehub.losses"
LOSS = """
from voicehub.kernels import KernelChoice, KernelPath, Loss
KERNELS = KernelChoice("toy.loss", (KernelPath("c", ("cpu",)), KernelPath("torch")))
LOSS = Loss("toy.loss", {"loss": lambda x: x + 1}, KERNELS)
NONE = 3
"""


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def toy(plant: Callable[..., None]) -> None:
    entries = {"toy.loss": "toy_losses:LOSS", "toy.none": "toy_losses:NONE"}
    plant("toy", {LOSSES: entries}, modules={"toy_losses": LOSS})


def choice(problem: str | None = None) -> KernelChoice:
    fast = KernelPath("c", ("cpu",), lambda: problem)
    return KernelChoice("toy.loss", (fast, KernelPath("triton", ("cuda",)), KernelPath("torch")))


@pytest.mark.parametrize(("device", "path"), [("cpu", "c"), ("cuda", "triton"), ("mps", "torch")])
def test_the_device_decides(device: str, path: str) -> None:
    found = choice().select(device)
    assert (found.path, found.device, found.reason) == (path, device, f"preferred on {device}")
    assert str(found) == f"{path} on {device}: preferred on {device}"


def test_a_slower_path_warns_once_and_says_why() -> None:
    kernels = choice("no compiler")
    with pytest.warns(RuntimeWarning, match="torch path on cpu.*no compiler"):
        found = kernels.select("cpu")
    assert (found.path, found.reason) == ("torch", "c cannot be used: no compiler")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.select("cpu") == found


def test_no_path_at_all_is_an_error() -> None:
    kernels = KernelChoice("toy.loss", (KernelPath("c", ("cpu",), lambda: "no compiler"),))
    with pytest.raises(ConfigurationError, match="no kernel for cpu; c cannot be used"):
        kernels.select("cpu")
    with pytest.raises(ConfigurationError, match="no kernel for mps; none is written"):
        kernels.select("mps")


def test_a_path_asked_for_never_gives_way() -> None:
    assert choice().select("cpu", "torch").reason == "asked for by the caller"
    with pytest.raises(ConfigurationError, match="'c', asked for.*cannot be used: no compiler"):
        choice("no compiler").select("cpu", "c")
    with pytest.raises(ConfigurationError, match="it does not run on cpu"):
        choice().select("cpu", "triton")
    with pytest.raises(ConfigurationError, match="There are: c, triton, torch. Did you mean 'tor"):
        choice().select("cpu", "trch")


def test_the_environment_overrides(toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = choice()
    assert kernels.select("cpu").path == "c"
    monkeypatch.setenv(VARIABLE, " toy.loss = torch ,")
    assert kernels.select("cpu").path == "torch"
    assert kernels.select("cpu").reason == f"asked for by {VARIABLE}"
    assert kernels.select("cpu", "c").path == "c"


@pytest.mark.parametrize(
    ("text", "said"),
    [("toy.loss", "expected loss=path"), ("toy.los=c", "Did you mean 'toy.loss'"), ("=c", "got")],
)
def test_a_misspelt_override_is_an_error(toy: None, text: str, said: str) -> None:
    overrides.cache_clear()
    with pytest.raises(ConfigurationError, match=said):
        overrides(text)


def test_a_loss_is_fetched_by_name(toy: None) -> None:
    loss = load_loss("toy.loss")
    assert loss(1) == 2
    assert loss.selected_kernel().path == "c"
    assert loss.selections()[0].device == "cpu"
    with pytest.raises(PluginError, match="must be a voicehub.kernels.Loss, got int"):
        load_loss("toy.none")


def test_a_loss_of_several_functions_names_them() -> None:
    loss = Loss("toy.two", {"one": abs, "other": len})
    assert "no kernel of its own" in loss.selected_kernel().reason
    with pytest.raises(PluginError, match="'one', 'other'"):
        loss(1)

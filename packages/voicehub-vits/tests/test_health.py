"""A discriminator that wins, or sees nothing, is named once while it happens."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from voicehub_vits.health import KEY, AdversarialMonitor
from voicehub_vits.terms import TERMS


class Watch:
    def __init__(self, count: int = 6) -> None:
        self.alerts: list[tuple[str, str]] = []
        self.count = count
        self.monitor = self.fresh()

    def fresh(self) -> AdversarialMonitor:
        return AdversarialMonitor(sub_discriminators=self.count)

    def alert(self, name: str, text: str) -> None:
        self.alerts.append((name, text))

    def log(self, losses: list[float], first_step: int = 0) -> None:
        for number, loss in enumerate(losses, start=1):
            state: Any = SimpleNamespace(global_step=first_step + 50 * number)
            trainer = SimpleNamespace(alert=self.alert)
            self.monitor.on_log(None, state, None, logs={KEY: loss}, trainer=trainer)  # type: ignore[arg-type]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.alerts]


def test_a_healthy_run_raises_nothing() -> None:
    watch = Watch()
    watch.log([5.8, 4.1, 3.1, 3.0, 2.9, 2.6, 2.2, 1.9, 0.4, 2.0, 1.8, 3.0, 2.4, *[1.9] * 50])
    assert watch.alerts == []


def test_a_discriminator_that_wins() -> None:
    watch = Watch()
    watch.log([2.5] * 10 + [0.4] * 4)
    assert watch.alerts == []
    watch.log([0.3, 0.3, 0.3], first_step=700)
    assert watch.names == ["discriminator-wins"]
    assert "0.30 in 5 log rows" in watch.alerts[0][1] and "undecided is 3.0" in watch.alerts[0][1]


@pytest.mark.parametrize("loss", [3.0, 2.97, 3.2])
def test_a_discriminator_that_sees_nothing(loss: float) -> None:
    watch = Watch()
    watch.log([loss] * 4)  # everything starts undecided
    assert watch.alerts == []
    watch.log([loss] * 5, first_step=200)
    assert watch.names == ["discriminator-collapsed"]
    assert "stayed at" in watch.alerts[0][1]


def test_bands_follow_the_number_of_discriminators() -> None:
    watch = Watch(count=3)
    watch.log([1.0] * 20)
    assert watch.alerts == []  # of three it is neither 0.25 nor 1.5
    watch.log([1.5] * 10, first_step=1000)
    assert watch.names == ["discriminator-collapsed"]


def test_what_was_seen_survives_a_resume() -> None:
    watch = Watch()
    watch.log([0.2] * 4)
    state = json.loads(json.dumps(watch.monitor.state_dict()))
    watch.monitor = watch.fresh()
    watch.monitor.load_state_dict(state)
    watch.log([0.2], first_step=200)
    assert watch.names == ["discriminator-wins"]
    watch.log([0.2] * 9, first_step=300)
    assert len(watch.alerts) == 1


def test_every_logged_term_is_explained_and_the_decisive_ones_are_marked() -> None:
    keys = {note.key for note in TERMS}
    logged = {"mel", "duration", "kl", "adversarial", "feature_matching"}
    assert {f"generator/{name}" for name in logged} <= keys
    assert {f"discriminator/{name}" for name in ("adversarial", "real", "generated")} <= keys
    deciding = {note.name for note in TERMS if note.decides}
    assert deciding == {"mel L1", "mel cepstral distance", "intelligibility", "duration error"}
    assert all(note.meaning and note.band and note.brief for note in TERMS)

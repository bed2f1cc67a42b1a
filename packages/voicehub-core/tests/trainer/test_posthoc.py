"""Averages whose width is chosen after training, in runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from voicehub.cli.app import run as command
from voicehub.errors import CheckpointCorruptError, CheckpointMismatchError, ConfigurationError
from voicehub.optim.power_profiles import gamma_of, power_decay
from voicehub.trainer.average_snapshots import FOLDER, list_snapshots
from voicehub.trainer.callbacks import TrainerCallback
from voicehub.trainer.posthoc_synthesis import plan_synthesis, synthesised
from voicehub.trainer.trainer import Trainer

POSTHOC = {
    "posthoc_ema": True,
    "posthoc_ema_snapshot_steps": 4,
    "max_steps": 10,
    "save_strategy": "steps",
    "save_steps": 5,
}


class Weights(TrainerCallback):
    """The weights after every update, in float64."""

    def __init__(self) -> None:
        self.history: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, *args: Any, **context: Any) -> None:
        module = context["adapter"].module
        self.history.append({n: p.detach().double().clone() for n, p in module.named_parameters()})

    def average(self, sigma_rel: float, updates: int) -> dict[str, torch.Tensor]:
        """What tracking that width would have given, in float64."""
        gamma = gamma_of(sigma_rel)
        found = {name: torch.zeros_like(value) for name, value in self.history[0].items()}
        for update, weights in enumerate(self.history[:updates]):
            for name, value in found.items():
                value.lerp_(weights[name], 1.0 - power_decay(update, gamma))
        return found


def made(run_dir: Path, sigma_rel: float, **options: Any) -> dict[str, torch.Tensor]:
    return dict(synthesised(plan_synthesis(run_dir, sigma_rel, **options)))


def files(run_dir: Path) -> dict[str, bytes]:
    """Stored averages by name; the run's own id is not part of what is compared."""
    return {
        path.relative_to(run_dir).as_posix(): path.read_bytes()
        for path in sorted((run_dir / FOLDER).rglob("*.safetensors"))
    }


def test_snapshots_are_written_on_schedule_and_after_the_last_update(toy: Any) -> None:
    watch = Weights()
    trainer = toy.run(dtype=torch.float64, trainer={"callbacks": [watch]}, **POSTHOC)
    snapshots = list_snapshots(trainer.run_dir)
    assert [snapshot.step for snapshot in snapshots] == [4, 8, 10]
    assert [[a.sigma_rel for a in s.averages] for s in snapshots] == [[0.05, 0.1]] * 3
    for step in (4, 8, 10):
        for sigma_rel in (0.05, 0.1):
            for name, value in made(trainer.run_dir, sigma_rel, step=step).items():
                expected = watch.average(sigma_rel, step)[name]
                torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)


def test_a_run_shorter_than_an_interval_has_one(toy: Any) -> None:
    trainer = toy.run(**{**POSTHOC, "posthoc_ema_snapshot_steps": 5000, "max_steps": 3})
    assert [snapshot.step for snapshot in list_snapshots(trainer.run_dir)] == [3]
    plan = plan_synthesis(trainer.run_dir, 0.1)
    assert plan.is_exact and plan.step == 3
    with pytest.raises(ConfigurationError, match=r"off by 16.9%.*0.05, 0.1.*--force"):
        plan_synthesis(trainer.run_dir, 0.03)
    forced = plan_synthesis(trainer.run_dir, 0.03, force=True)
    assert math.fsum(term.weight for term in forced.terms) == pytest.approx(1.0, abs=1e-12)


def test_a_width_that_was_not_tracked(toy: Any) -> None:
    """Twenty snapshots of 400 updates against the average tracked at that width."""
    watch = Weights()
    settings = {**POSTHOC, "max_steps": 400, "posthoc_ema_snapshot_steps": 20}
    trainer = toy.run(
        dtype=torch.float64,
        trainer={"callbacks": [watch]},
        **{**settings, "save_strategy": "no", "logging_steps": 100},
    )
    values = made(trainer.run_dir, 0.075)
    expected = watch.average(0.075, 400)
    off = sum(float((values[n] - expected[n]).square().sum()) for n in expected)
    size = sum(float(value.square().sum()) for value in expected.values())
    assert math.sqrt(off / size) < 1e-3


def test_resume_is_exact_and_drops_what_lies_ahead(toy: Any) -> None:
    whole = toy.run(**POSTHOC)
    cut = toy.run(**{**POSTHOC, "output_dir": str(toy.path / "cut")})
    lost = cut.run_dir / FOLDER / "step-00000010"
    (lost / "sigma-rel-0.05.safetensors").write_bytes(b"of a future that was given up")
    seen: list[list[int]] = []

    class Look(TrainerCallback):
        def on_step_begin(self, *args: Any, **context: Any) -> None:
            seen.append([s.step for s in list_snapshots(cut.run_dir)])

    resumed = toy.run(
        resume=cut.run_dir / "checkpoint-5",
        trainer={"callbacks": [Look()]},
        **{**POSTHOC, "output_dir": str(cut.run_dir)},
    )
    assert seen[0] == [4]
    for name, average in resumed.averaging.averages.items():
        for key, value in whole.averaging.averages[name].shadows().items():
            assert torch.equal(value, average.shadows()[key]), (name, key)
    assert files(resumed.run_dir) == files(whole.run_dir)


def test_other_widths_are_another_run(toy: Any) -> None:
    whole = toy.run(**POSTHOC)
    with pytest.raises(CheckpointMismatchError, match="sigma_rels"):
        toy.run(
            resume=whole.run_dir / "checkpoint-5",
            posthoc_ema_sigma_rels=[0.05],
            **{**POSTHOC, "output_dir": str(whole.run_dir)},
        )


def test_averages_of_another_run_are_refused(toy: Any) -> None:
    one, other = toy.run(**POSTHOC), toy.run(**POSTHOC)
    stranger = other.run_dir / FOLDER / "step-00000008"
    stranger.rename(one.run_dir / FOLDER / "step-00000007")
    with pytest.raises(CheckpointCorruptError, match="named for step 7"):
        plan_synthesis(one.run_dir, 0.1)
    (one.run_dir / FOLDER / "step-00000008").rename(toy.path / "own")
    (one.run_dir / FOLDER / "step-00000007").rename(one.run_dir / FOLDER / "step-00000008")
    with pytest.raises(CheckpointMismatchError, match=r"holds averages of the run"):
        plan_synthesis(one.run_dir, 0.1)


def test_a_new_run_puts_those_of_an_older_one_aside(toy: Any) -> None:
    place = {"output_dir": str(toy.path / "again"), "overwrite_output_dir": True}
    toy.run(**{**POSTHOC, **place})
    second = toy.run(**{**POSTHOC, **place, "max_steps": 2, "save_strategy": "no"})
    assert [snapshot.step for snapshot in list_snapshots(second.run_dir)] == [2]
    assert (second.run_dir / f"{FOLDER}.previous" / "step-00000010").is_dir()


def test_a_flipped_byte_is_named(toy: Any) -> None:
    trainer = toy.run(**POSTHOC)
    path = trainer.run_dir / FOLDER / "step-00000008" / "sigma-rel-0.1.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    made(trainer.run_dir, 0.05)  # another file
    with pytest.raises(CheckpointCorruptError, match=r"step-00000008.sigma-rel-0\.1.*is damaged"):
        made(trainer.run_dir, 0.1, step=8)


def test_a_full_disk_leaves_older_snapshots(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from voicehub.checkpoints import tensor_file
    from voicehub.errors import CheckpointError

    real = tensor_file.write_tensors

    def full(path: Path, tensors: Any) -> Any:
        if "step-00000008" in str(path):
            raise OSError(28, "No space left on device")
        return real(path, tensors)

    monkeypatch.setattr(tensor_file, "write_tensors", full)
    with pytest.raises(CheckpointError, match=r"step 8.*No space left"):
        toy.run(**{**POSTHOC, "output_dir": str(toy.path / "full")})
    assert [s.step for s in list_snapshots(toy.path / "full")] == [4]
    assert not list((toy.path / "full" / FOLDER).glob(".*"))


def test_evaluations_and_artifacts_take_the_first_width(toy: Any) -> None:
    trainer = toy.run(
        trainer={"eval_dataset": toy.Frames(5, seed=1)}, eval_weights="both", **POSTHOC
    )
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] != metrics["eval_ema_loss"]
    averaged = trainer.save_averaged_model()
    shadows = trainer.averaging.averages["0.05"].shadows()
    for name, value in load_file(averaged / "model.safetensors").items():
        assert torch.equal(value, shadows[name])
    manifest = json.loads((averaged / "training_recipe.json").read_text())
    assert manifest["weights"] == "ema"
    assert manifest["ema"]["kind"] == "power-function"
    assert manifest["ema"]["sigma_rel"] == pytest.approx(0.05)
    assert manifest["ema"]["updates"] == 10 and manifest["ema"]["start_share"] == 0.0
    fresh = Trainer(model=toy.FrameRegressor(), args=toy.arguments())
    fresh.load_weights(trainer.run_dir / "checkpoint-10", weights="ema")
    for name, value in toy.weights(fresh.model).items():
        assert torch.equal(value, shadows[name])


def test_averages_kept_in_main_memory_are_the_same(toy: Any) -> None:
    plain, offloaded = toy.run(**POSTHOC), toy.run(posthoc_ema_offload=True, **POSTHOC)
    assert files(plain.run_dir) == files(offloaded.run_dir)


def test_the_command_writes_a_model(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    watch = Weights()
    trainer = toy.run(trainer={"callbacks": [watch]}, **POSTHOC)
    run, out = str(trainer.run_dir), toy.path / "wide"
    options = ["ema", "synthesize", "--run", run, "--sigma-rel", "0.12", "--out", str(out)]
    assert command(options) == 2
    assert "final-model does not exist" in capsys.readouterr().err
    trainer.save_final_model()
    assert command(options) == 0
    shown = capsys.readouterr().out
    assert "profile residual" in shown and str(out) in shown
    assert command([*options[:-1], str(out / "config.json/x")]) == 2
    assert "config.json cannot be written" in capsys.readouterr().err
    manifest = json.loads((out / "training_recipe.json").read_text())
    assert manifest["weights"] == "ema" and manifest["ema"]["sigma_rel"] == 0.12
    terms = manifest["ema"]["synthesis"]["terms"]
    assert math.fsum(term["weight"] for term in terms) == pytest.approx(1.0, abs=1e-9)
    written = load_file(out / "model.safetensors")
    assert written.keys() == toy.weights(trainer.model).keys()
    stored = load_file(trainer.run_dir / FOLDER / "step-00000010" / "sigma-rel-0.1.safetensors")
    for name, value in written.items():  # short of exact: ten updates, three snapshots
        torch.testing.assert_close(value, stored[name], rtol=0.1, atol=0.05)
        torch.testing.assert_close(value, watch.average(0.12, 10)[name].float(), rtol=0, atol=0.02)
    assert command(options) == 2
    assert "is there already" in capsys.readouterr().err
    assert command(["ema", "list", "--run", run]) == 0
    assert "0.05, 0.1" in capsys.readouterr().out


def test_the_command_names_what_is_wrong(toy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plain = toy.run(max_steps=1)
    plain.save_final_model()
    assert command(["ema", "list", "--run", str(plain.run_dir)]) == 2
    assert "training.posthoc_ema=true" in capsys.readouterr().err
    assert command(["ema", "list", "--run", str(toy.path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ema_decay": 0.9}, "one kind of averaged weights"),
        ({"posthoc_ema_sigma_rels": [0.05, 0.05]}, "different relative widths"),
        ({"posthoc_ema_sigma_rels": [0.4]}, r"at most 0\.288675"),
        ({"posthoc_ema_sigma_rels": []}, "posthoc_ema_sigma_rels"),
        ({"posthoc_ema_snapshot_steps": 0}, "posthoc_ema_snapshot_steps"),
    ],
)
def test_settings_that_cannot_be(toy: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        toy.arguments(**{"posthoc_ema": True, **settings})


def test_a_short_run_says_how_much_of_the_start_is_left(toy: Any) -> None:
    settings = {"ema_decay": 0.999, "max_steps": 4}
    left = toy.run(ema_warmup=False, **settings)
    alerts = [row["alert"] for row in left.state.log_history if "alert" in row]
    assert len(alerts) == 1 and alerts[0].startswith("averaged-start: after 4 updates 100%")
    assert left.averaging.describe()["start_share"] == pytest.approx(0.999**4)
    warmed = toy.run(**settings)
    assert not [row for row in warmed.state.log_history if "alert" in row]
    assert warmed.averaging.describe()["start_share"] == pytest.approx(
        math.prod((1 + n) / (10 + n) for n in range(4))
    )

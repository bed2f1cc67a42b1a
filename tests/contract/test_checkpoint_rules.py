"""C1-C8: what a checkpoint holds, how it is judged, what a resume and an artifact promise."""

from __future__ import annotations

import json
import pickle
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from recipes import (
    WRAPPED,
    Frames,
    Regressor,
    Remembering,
    StopAfter,
    Wrapped,
    arguments,
    collate,
    same,
    seeded,
    trainer_for,
    weights,
)
from safetensors.torch import load_file, save_file
from torch import nn

from voicehub.checkpoints.layout import latest_checkpoint
from voicehub.checkpoints.reader import open_checkpoint
from voicehub.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError
from voicehub.trainer.trainer import Trainer

SAVING = {"save_strategy": "steps", "save_steps": 1}
CORE = {
    "model_state.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "training_runtime.pt",
    "trainer_state.json",
    "training_args.json",
    "training_recipe.json",
    "checkpoint_manifest.json",
    ".complete",
}


def wrapped_trainer(
    source: Path, directory: Path, *, adapter: type[Remembering] = Remembering, **settings: Any
) -> Trainer:
    """A Trainer of the toy wrapper, whose recipe has state of its own."""
    model = Wrapped(source)
    return Trainer(
        model=model,
        args=arguments(directory, **{**SAVING, **settings}),
        data_collator=collate,
        train_dataset=Frames(22),
        training_adapter=adapter(model, WRAPPED),
    )


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved") / "run"
    trainer_for("plain", directory, **{**SAVING, "max_steps": 2}).train()
    return directory


@pytest.fixture
def saved(saved_once: Path, tmp_path: Path) -> Path:
    """A complete checkpoint of a plain run, at step 2; a copy of its own."""
    shutil.copytree(saved_once, tmp_path / "run")
    return tmp_path / "run" / "checkpoint-2"


def names(directory: Path) -> set[str]:
    return {
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    }


class TestC1:
    """What is written, and that it appears at once."""

    def test_C1_the_files_of_a_checkpoint(self, saved: Path) -> None:
        assert names(saved) == CORE
        assert [path.name for path in saved.parent.glob(".*")] == []

    def test_C1_files_that_depend_on_the_run(self, tmp_path: Path, checkpoint_dir: Path) -> None:
        class Processor:
            def to_json_string(self) -> str:
                return '{"rate": 16000}'

            def save_pretrained(self, directory: Any) -> None:
                raise AssertionError("a checkpoint is no artifact")

        trainer = wrapped_trainer(checkpoint_dir, tmp_path / "run", max_steps=1)
        trainer.processing_class = Processor()
        trainer.train()
        place = tmp_path / "run" / "checkpoint-1"
        assert names(place) == CORE | {"config.json", "processor_config.json"}
        config = json.loads((place / "config.json").read_text())
        assert config["model_type"] == "contract-wrapped" and config["model"] == {"hidden": 6}

    def test_C1_the_mark_holds_the_digest_of_the_manifest(self, saved: Path) -> None:
        digest = sha256((saved / "checkpoint_manifest.json").read_bytes()).hexdigest()
        assert (saved / ".complete").read_text().strip() == digest

    @pytest.mark.parametrize("fails", ["optimizer.pt", "training_runtime.pt", ".complete"])
    def test_C1_a_save_that_fails_leaves_no_checkpoint(
        self, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trainer = trainer_for("plain", tmp_path / "run", **SAVING)
        real = Path.open
        allowed = {"checkpoint-1"}

        def opened(path: Path, *arguments: Any, **options: Any) -> Any:
            staged = path.parent.name
            if path.name == fails and not any(name in staged for name in allowed):
                raise OSError(28, "No space left on device")
            return real(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", opened)
        with pytest.raises(CheckpointError):
            trainer.train()
        monkeypatch.undo()
        left = sorted(path.name for path in (tmp_path / "run").iterdir() if path.is_dir())
        assert left == ["checkpoint-1"]
        open_checkpoint(tmp_path / "run" / "checkpoint-1")


class TestC2:
    """Everything is verified before anything is used."""

    def test_C2_what_the_manifest_records(self, saved: Path) -> None:
        manifest = json.loads((saved / "checkpoint_manifest.json").read_text())
        assert manifest["format_version"] == 4 and manifest["global_step"] == 2
        assert manifest["model_type"] == "Regressor" and manifest["strategy"] == "torch"
        assert manifest["optimizer_names"] == ["default"]
        assert manifest["adapter"]["class"].endswith("ModuleAdapter")
        listed = set(manifest["required_files"])
        assert listed == CORE - {"checkpoint_manifest.json", ".complete"}
        for name, entry in manifest["file_integrity"].items():
            content = (saved / name).read_bytes()
            assert entry == {"size": len(content), "sha256": sha256(content).hexdigest()}

    @pytest.mark.parametrize("name", sorted(CORE))
    @pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
    def test_C2_damage_is_named_before_anything_loads(
        self, saved: Path, name: str, damage: str
    ) -> None:
        path = saved / name
        content = bytearray(path.read_bytes())
        if damage == "delete":
            path.unlink()
        elif damage == "truncate":
            path.write_bytes(content[:-1])
        else:
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        trainer = trainer_for("plain", saved.parent, **{**SAVING, "max_steps": 2})
        before = weights(trainer)
        with pytest.raises(CheckpointCorruptError, match=name.replace(".", r"\.")):
            trainer.train(resume_from_checkpoint=str(saved))
        assert same(before, weights(trainer)) and trainer.state.global_step == 0

    @pytest.mark.parametrize("name", ["optimizer.pt", "training_runtime.pt", "rng_state.pth"])
    def test_C2_a_file_that_carries_code_is_refused_digest_or_not(
        self, saved: Path, name: str, tmp_path: Path
    ) -> None:
        trap = tmp_path / "executed"

        class Code:
            def __reduce__(self) -> Any:
                return (Path.touch, (trap,))

        torch.save({"state": Code()}, saved / name)
        manifest_path = saved / "checkpoint_manifest.json"
        manifest = json.loads(manifest_path.read_text())
        content = (saved / name).read_bytes()
        manifest["file_integrity"][name] = {
            "size": len(content),
            "sha256": sha256(content).hexdigest(),
        }
        manifest_path.write_text(json.dumps(manifest))
        digest = sha256(manifest_path.read_bytes()).hexdigest()
        (saved / ".complete").write_text(digest + "\n")
        trainer = trainer_for("plain", saved.parent, **{**SAVING, "max_steps": 2})
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            trainer.train(resume_from_checkpoint=str(saved))
        assert not trap.exists()
        pickle.loads(pickle.dumps(Code()))  # the trap itself works
        assert trap.exists()


CHANGES: dict[str, dict[str, Any]] = {
    "data.micro_batch": {"per_device_train_batch_size": 4},
    "data.accumulation": {"gradient_accumulation_steps": 2},
    "data.seed": {"data_seed": 7},
    "schedule.max_steps": {"max_steps": 5},
    "schedule.type": {"lr_scheduler_type": "cosine"},
    "schedule.routes.default.warmup": {
        "warmup_steps": 1,
        "lr_scheduler_type": "constant_with_warmup",
    },
    "optimization.optimizers.default.groups": {"learning_rate": 0.01},
    "optimization.optimizers.default.class": {"optim": "sgd"},
    "optimization.max_grad_norm": {"max_grad_norm": 2.0},
    "optimization.freeze": {"freeze": [{"pattern": "hidden", "until_step": 1}]},
    "precision.bf16": {"bf16": True},
    "stateful_callbacks": {"ema_decay": 0.9},
}


class TestC3:
    """A resume is of the same run, or refused with what differs."""

    @pytest.mark.parametrize("entry", CHANGES)
    def test_C3_a_changed_plan_is_refused_with_the_entry(self, saved: Path, entry: str) -> None:
        settings = {**SAVING, "max_steps": 2, **CHANGES[entry]}
        trainer = trainer_for("plain", saved.parent, **settings)
        with pytest.raises(CheckpointMismatchError) as caught:
            trainer.train(resume_from_checkpoint=True)
        message = str(caught.value)
        assert f"resume_signature.{entry}" in message
        assert "checkpoint=" in message and "current=" in message
        assert "load_weights" in message  # the warm start, by name

    def test_C3_another_recipe_model_or_dataset_is_refused(self, saved: Path) -> None:
        settings = {**SAVING, "max_steps": 2}
        for other in (
            trainer_for("hybrid", saved.parent, **settings),
            trainer_for("plain", saved.parent, dropout=0.1, **settings),
            trainer_for("plain", saved.parent, data=Frames(23), **settings),
        ):
            with pytest.raises(CheckpointMismatchError, match="checkpoint="):
                other.train(resume_from_checkpoint=True)

    def test_C3_fingerprints_of_data_are_compared(self, tmp_path: Path) -> None:
        class Dated(Frames):
            content = "monday"

            def resume_fingerprint(self) -> dict[str, str]:
                return {"content": self.content}

        trainer_for("plain", tmp_path / "run", data=Dated(22), **SAVING).train()
        changed = Dated(22)
        changed.content = "tuesday"
        again = trainer_for("plain", tmp_path / "run", data=changed, **SAVING)
        with pytest.raises(CheckpointMismatchError, match=r"content.*'monday'.*'tuesday'"):
            again.train(resume_from_checkpoint=True)

    def test_C3_incomplete_and_newer_checkpoints_are_refused(self, saved: Path) -> None:
        manifest_path = saved / "checkpoint_manifest.json"
        manifest = json.loads(manifest_path.read_text())
        manifest["format_version"] = 5
        manifest_path.write_text(json.dumps(manifest))
        (saved / ".complete").write_text(sha256(manifest_path.read_bytes()).hexdigest() + "\n")
        with pytest.raises(CheckpointMismatchError, match="newer voicehub"):
            open_checkpoint(saved)
        (saved / ".complete").unlink()
        with pytest.raises(CheckpointCorruptError, match=r"\.complete.*never completed"):
            open_checkpoint(saved)

    def test_C3_the_number_of_workers_is_no_part_of_it(self, saved: Path) -> None:
        settings = {**SAVING, "max_steps": 2, "dataloader_num_workers": 1, "logging_steps": 2}
        trainer = trainer_for("plain", saved.parent, **settings)
        trainer.train(resume_from_checkpoint=str(saved))
        assert trainer.state.global_step == 2


class TestC4:
    """Which checkpoint a resume takes."""

    def test_C4_true_takes_the_newest_complete_one_by_number(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        trainer_for("plain", run, **{**SAVING, "max_steps": 12}).train()
        (run / "checkpoint-12" / ".complete").unlink()
        assert latest_checkpoint(run) == run / "checkpoint-11"
        again = trainer_for("plain", run, **{**SAVING, "max_steps": 12})
        again.train(resume_from_checkpoint=True)
        assert again._run is not None and again._run.restored_from == run / "checkpoint-11"
        named = trainer_for("plain", run, **{**SAVING, "max_steps": 12})
        named.train(resume_from_checkpoint=run / "checkpoint-4")
        assert named._run is not None and named._run.restored_from == run / "checkpoint-4"

    def test_C4_none_complete_is_an_error(self, saved: Path) -> None:
        for checkpoint in saved.parent.glob("checkpoint-*"):
            (checkpoint / ".complete").unlink()
        trainer = trainer_for("plain", saved.parent, **{**SAVING, "max_steps": 2})
        with pytest.raises(FileNotFoundError, match="nothing complete"):
            trainer.train(resume_from_checkpoint=True)
        with pytest.raises(FileNotFoundError, match="does not exist"):
            trainer.train(resume_from_checkpoint=str(saved.parent / "checkpoint-9"))


class TestC6:
    """The portable artifact and what is exported beside it."""

    def test_C6_ours_at_the_root_the_native_export_apart(
        self, tmp_path: Path, checkpoint_dir: Path
    ) -> None:
        trainer = wrapped_trainer(checkpoint_dir, tmp_path / "run")
        trainer.train()
        artifact = trainer.save_model()
        assert json.loads((artifact / "config.json").read_text())["voicehub_format"] == 1
        native = json.loads((artifact / "native_export" / "config.json").read_text())
        assert native == {"native": True}
        recipe = json.loads((artifact / "training_recipe.json").read_text())
        assert recipe["native_export_path"] == "native_export"
        assert recipe["native_export"] == "inference-export" and recipe["weights"] == "raw"
        fresh = Wrapped(artifact)
        fresh.load()
        assert same(fresh.model.state_dict(), trainer.model.model.state_dict())

    def test_C6_without_an_export_the_manifest_says_so(
        self, tmp_path: Path, checkpoint_dir: Path
    ) -> None:
        trainer = wrapped_trainer(checkpoint_dir, tmp_path / "run")
        trainer.train()
        artifact = trainer.save_model(include_native_export=False)
        recipe = json.loads((artifact / "training_recipe.json").read_text())
        assert recipe["native_export_path"] is None and not (artifact / "native_export").exists()
        assert not list((tmp_path / "run").glob("checkpoint-*/native_export"))

    def test_C6_averages_are_exported_apart_and_named(self, tmp_path: Path) -> None:
        trainer = trainer_for("plain", tmp_path / "run", ema_decay=0.5)
        trainer.train()
        artifact = trainer.save_model(tmp_path / "averaged", weights="ema")
        assert json.loads((artifact / "training_recipe.json").read_text())["weights"] == "ema"
        assert trainer.averaging is not None
        assert same(load_file(artifact / "model.safetensors"), trainer.averaging.ema.shadows())


def test_C7_the_best_and_the_newest_are_never_rotated_away(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    class Best(StopAfter):
        def on_evaluate(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            context["metrics"]["eval_loss"] = float(abs(state.global_step - 2))

        def on_checkpoint_saved(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            found = sorted(context["checkpoint"].parent.glob("checkpoint-*"))
            seen.append([path.name for path in found])

    trainer = trainer_for(
        "plain",
        tmp_path / "run",
        options={"eval_dataset": Frames(3), "callbacks": [Best(0)]},
        max_steps=5,
        eval_strategy="steps",
        eval_steps=1,
        save_total_limit=1,
        load_best_model_at_end=True,
        **SAVING,
    )
    trainer.train()
    assert seen[-1] == ["checkpoint-2", "checkpoint-5"]
    assert trainer.state.best_model_checkpoint == "checkpoint-2"
    stranger = tmp_path / "run" / "checkpoint-note"
    stranger.mkdir()
    for kept in seen[-1]:
        open_checkpoint(tmp_path / "run" / kept)


class TestC8:
    """State that the recipe owns."""

    def test_C8_it_is_in_checkpoints_and_handed_over_once_the_graph_is_there(
        self, tmp_path: Path, checkpoint_dir: Path
    ) -> None:
        whole = wrapped_trainer(checkpoint_dir, tmp_path / "run", max_steps=3)
        whole.train()
        speaker = whole.adapter.speaker  # type: ignore[attr-defined]
        assert speaker.tolist() == [4.25, 4.25]
        shutil.rmtree(tmp_path / "run" / "checkpoint-3")
        again = wrapped_trainer(checkpoint_dir, tmp_path / "run", max_steps=3)
        again.train(resume_from_checkpoint=True)
        assert again.adapter.graph_was_there is True  # type: ignore[attr-defined]
        assert torch.equal(again.adapter.speaker, speaker)  # type: ignore[attr-defined]

    def test_C8_it_is_in_the_portable_artifact(self, tmp_path: Path, checkpoint_dir: Path) -> None:
        trainer = wrapped_trainer(checkpoint_dir, tmp_path / "run", max_steps=2)
        trainer.train()
        artifact = trainer.save_model()
        fresh = wrapped_trainer(artifact, tmp_path / "next")
        fresh.graph  # noqa: B018 - set-up happens here
        assert fresh.adapter.graph_was_there is True  # type: ignore[attr-defined]
        assert torch.equal(
            fresh.adapter.speaker,  # type: ignore[attr-defined]
            trainer.adapter.speaker,  # type: ignore[attr-defined]
        )

    def test_C8_another_recipe_leaves_it_out_and_says_so(
        self, tmp_path: Path, checkpoint_dir: Path
    ) -> None:
        class Other(Remembering):
            RECIPE_VERSION = 2

        trainer = wrapped_trainer(checkpoint_dir, tmp_path / "run", max_steps=1)
        trainer.train()
        fresh = wrapped_trainer(trainer.save_model(), tmp_path / "next", adapter=Other)
        with pytest.warns(RuntimeWarning, match="recipe state"):
            fresh.graph  # noqa: B018 - set-up happens here
        assert fresh.adapter.speaker.tolist() == [0.0, 0.0]  # type: ignore[attr-defined]


def test_C2_weights_are_plain_safetensors(saved: Path, tmp_path: Path) -> None:
    tensors = load_file(saved / "model_state.safetensors")
    model = seeded(Regressor)
    model.load_state_dict(tensors)
    save_file(tensors, tmp_path / "copy.safetensors")
    assert isinstance(model, nn.Module)

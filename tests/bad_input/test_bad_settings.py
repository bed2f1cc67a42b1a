"""Bad settings, places and checkpoints: one clear message, and nothing written before is lost."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest


def message_of(outcome: Any, code: int) -> str:
    assert outcome.code == code, outcome.text
    assert "Traceback" not in outcome.text
    error = outcome.last_json["error"]
    assert "traceback_file" not in error, error
    return str(error["message"])


def test_an_unknown_key_names_the_nearest(corpus: Any, train: Any) -> None:
    message = message_of(train("training.learning_rat=1e-3"), 2)
    assert "training.learning_rat" in message and "training.learning_rate" in message


def test_an_unknown_key_of_the_family_names_the_nearest(corpus: Any, train: Any) -> None:
    assert "model.hidden_size" in message_of(train("model.hiden_size=3"), 2)


def test_a_wrong_type_names_key_and_value(corpus: Any, train: Any) -> None:
    message = message_of(train("training.max_steps=many"), 2)
    assert "training.max_steps" in message and "many" in message


def test_settings_that_contradict_each_other(corpus: Any, train: Any) -> None:
    message = message_of(train("training.fp16=true", "training.bf16=true"), 2)
    assert "fp16" in message and "bf16" in message


def test_a_setting_that_nothing_here_reads(corpus: Any, train: Any) -> None:
    message = message_of(train("training.per_device_eval_batch_size=1"), 2)
    assert "data.eval_padded_seconds" in message


def test_a_preset_that_does_not_exist(corpus: Any, train: Any) -> None:
    message = message_of(train(preset="asr-ctc/tinny"), 2)
    assert "asr-ctc/tiny" in message


def test_a_manifest_that_does_not_exist(corpus: Any, train: Any) -> None:
    assert "nowhere.jsonl" in message_of(train(data="nowhere.jsonl"), 1)


def test_a_warmup_that_never_ends(corpus: Any, train: Any) -> None:
    message = message_of(train("training.warmup_ratio=0", "training.warmup_steps=50"), 2)
    assert "warm-up" in message


def test_an_output_directory_that_cannot_be_written(corpus: Any, train: Any) -> None:
    (corpus.directory / "file").write_text("")
    message = message_of(train("training.output_dir=file/run"), 1)
    assert "file/run" in message


def test_a_full_disk_keeps_what_was_written(
    corpus: Any, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train("training.save_steps=1", "training.save_strategy=steps").code == 0
    first = {p: p.read_bytes() for p in Path("run/checkpoint-1").iterdir()}
    from voicehub.checkpoints import writer

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer.torch, "save", full)
    shutil.move("run", "kept")
    outcome = train("training.save_strategy=steps", "training.save_steps=1")
    message = message_of(outcome, 1)
    assert "No space left" in message and "free" in message
    assert {p.name: b for p, b in first.items()} == {
        p.name: p.read_bytes() for p in Path("kept/checkpoint-1").iterdir()
    }
    assert not [p for p in Path("run").iterdir() if "checkpoint" in p.name]


def test_a_checkpoint_of_another_model(corpus: Any, train: Any) -> None:
    saving = ("training.save_strategy=steps", "training.save_steps=1")
    assert train(*saving).code == 0
    before = {p: p.read_bytes() for p in Path("run").rglob("checkpoint-1/*")}
    outcome = train(*saving, "model.hidden_size=32", "resume=true")
    message = message_of(outcome, 1)
    assert "checkpoint-1" in message and "checkpoint=" in message
    assert before == {p: p.read_bytes() for p in before}


def test_a_damaged_checkpoint_is_named(corpus: Any, train: Any) -> None:
    saving = ("training.save_strategy=steps", "training.save_steps=1")
    assert train(*saving).code == 0
    weights = Path("run/checkpoint-1/model_state.safetensors")
    weights.write_bytes(weights.read_bytes()[:-2] + b"xx")
    assert "model_state.safetensors" in message_of(train(*saving, "resume=auto"), 1)


def test_resuming_where_nothing_is(corpus: Any, train: Any) -> None:
    assert "checkpoint" in message_of(train("resume=true"), 2).lower()


def test_a_used_run_directory_is_refused(corpus: Any, train: Any) -> None:
    saving = ("training.save_strategy=steps", "training.save_steps=1")
    assert train(*saving).code == 0
    assert "resume" in message_of(train(*saving), 2)


def test_transcribing_with_what_is_no_model(corpus: Any, voicehub: Any) -> None:
    (corpus.directory / "nothing").mkdir()
    outcome = voicehub("transcribe", "good-0.flac", "--model", "nothing", "--json")
    assert outcome.code in (1, 2) and "nothing" in json.dumps(outcome.last_json)
    assert "Traceback" not in outcome.text


def test_transcribing_a_file_that_is_no_audio(corpus: Any, train: Any, voicehub: Any) -> None:
    assert train().code == 0
    Path("text.wav").write_text("no audio")
    outcome = voicehub(
        "transcribe", "good-0.flac", "text.wav", "--model", "run/final-model", "--json"
    )
    assert outcome.code == 1
    answer = json.dumps(outcome.last_json)
    assert "text.wav" in answer and "good-0" in answer, "the good file's transcript was lost"
    assert "Traceback" not in outcome.text

"""Trainer and plain loop of each family's step find the same losses; speed is not judged here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from harness import beside

SMALL = {
    "asr_llm_step": ["model.projector.hidden_size=32"],
    "asr_ctc_step": ["model.hidden_size=16", "model.num_blocks=2", "model.dropout=0"],
    "codec_lm_step": [
        "model.dropout=0",
        "model.architecture.hidden_size=16",
        "model.architecture.ffn_dim=16",
        "model.architecture.num_hidden_layers=1",
    ],
    "flow_step": ["model.architecture.dim=32", "model.architecture.depth=1"],
    "xvector_step": ["model.head.dropout=0", "model.head.endpoint_channels=32"],
}
FAMILIES = {
    "asr_llm_step": "voicehub_asr_llm",
    "asr_ctc_step": "voicehub_asr_ctc",
    "codec_lm_step": "voicehub_codec_lm",
    "flow_step": "voicehub_flow",
    "xvector_step": "voicehub_xvector",
}

OPTIONS = {"asr_llm_step": {"width": 32, "vocabulary": 96}, "codec_lm_step": {"codes": 16}}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "overrides"), SMALL.items())
def test_both_loops_find_the_same_losses(
    name: str, overrides: Sequence[str], tmp_path: Path
) -> None:
    pytest.importorskip(FAMILIES[name])
    script = importlib.import_module(name)
    options = OPTIONS.get(name, {})
    found = script.measure(1, tmp_path, overrides, batch=2, **options)
    assert len(found.ours) == len(found.plain) == 1
    assert len(found.losses["ours"]) == beside.WARM_UP + 1
    assert found.losses["ours"] == pytest.approx(found.losses["plain"], rel=1e-3)
    assert found.losses["ours"][0] == pytest.approx(found.losses["plain"][0], rel=1e-6)
    assert found.losses["ours"][0] != found.losses["ours"][-1]
    assert found.as_json()["ratio"] == pytest.approx(found.ratio, abs=1e-4)


def test_a_resumed_benchmark_reads_the_next_batch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import resume_time

    found = resume_time.measure(400, 1, tmp_path)
    assert found["step"] == 40
    assert set(found["seconds"]) == {
        "voicehub", "voicehub, step 0", "transformers", "transformers, step 0",
    }  # fmt: skip
    assert all(values[0] > 0 for values in found["seconds"].values())

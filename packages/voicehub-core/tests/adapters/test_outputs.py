"""An output is an object, a mapping and a tuple of what it holds."""

from __future__ import annotations

import pytest
import torch

from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput


def test_mapping_and_tuple_protocol_over_populated_fields():
    loss, logits = torch.tensor(1.0), torch.zeros(2)
    output = SpeechTrainingOutput(loss=loss, logits=logits, training_phase="main")
    assert list(output) == ["loss", "logits", "training_phase"]
    assert output["loss"] is loss
    assert output[0] is loss
    assert output[:2] == (loss, logits)
    assert output.to_tuple()[1] is logits
    assert "hidden_states" not in output
    assert "losses" not in output
    assert output.get("hidden_states", 3) == 3
    assert output.get("nonsense") is None
    assert len(output) == 3
    assert dict(output)["logits"] is logits
    assert set(dict(**output)) == {"loss", "logits", "training_phase"}
    with pytest.raises(KeyError, match="populated fields: loss, logits"):
        output["hidden_states"]


def test_text_to_speech_outputs_are_speech_outputs():
    assert isinstance(TTSTrainingOutput(), SpeechTrainingOutput)

"""Whatever a forward returns becomes one scalar loss, or a clear error."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch

from voicehub.adapters.losses import LossRule, normalise
from voicehub.adapters.outputs import SpeechTrainingOutput, TTSTrainingOutput
from voicehub.specs.phase import TrainingPhaseSpec


def value(number: float) -> torch.Tensor:
    return torch.tensor(number, requires_grad=True)


def rule(**fields):
    phase = TrainingPhaseSpec(**{"name": "main", **fields})
    return LossRule.of(phase, TTSTrainingOutput, {"model_type": "toy"})


def total(raw, **fields):
    return normalise(raw, rule(**fields), training=True)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda loss: loss,
        lambda loss: (loss,),
        lambda loss: [loss, torch.zeros(3)],
        lambda loss: {"loss": loss},
        lambda loss: OrderedDict(loss=loss, logits=torch.zeros(3)),
        lambda loss: SimpleNamespace(loss=loss),
        lambda loss: namedtuple("Out", "logits loss")(torch.zeros(3), loss),
        lambda loss: SpeechTrainingOutput(loss=loss),
        lambda loss: {"loss": loss, "losses": {"mel": torch.tensor(9.0)}},
        lambda loss: {"loss": loss, "total_loss": value(99.0)},
        lambda loss: {"total_loss": loss},
    ],
)
def test_accepted_forms(wrap):
    loss = value(2.5)
    output = total(wrap(loss))
    assert output.loss is loss
    assert isinstance(output, SpeechTrainingOutput)
    assert output.training_phase == "main"
    assert output.metadata["model_type"] == "toy"


def test_predictions_items_and_components_are_kept():
    logits = torch.zeros(2, 3)
    raw = {
        "loss": value(1.0),
        "losses": {"mel": value(0.5), "table": torch.zeros(3), "note": "text"},
        "logits": logits,
        "waveform": torch.ones(4),
        "num_items": torch.tensor(7),
    }
    output = total(raw)
    assert isinstance(output, TTSTrainingOutput)
    assert output.logits is logits
    assert torch.equal(output.predictions, torch.ones(4))
    assert output.num_items == 7
    assert set(output.losses) == {"mel"}
    assert not output.losses["mel"].requires_grad


def test_declared_weights_apply():
    raw = {"losses": {"mel": value(2.0), "kl": value(3.0)}, "aux": value(5.0), "loss": value(99.0)}
    output = total(raw, loss_keys=("mel", "kl", "aux"), loss_weights={"mel": 45.0, "kl": 0.5})
    assert output.loss.item() == pytest.approx(45 * 2 + 0.5 * 3 + 5)
    assert {key: item.item() for key, item in output.losses.items()} == {
        "mel": 2.0,
        "kl": 3.0,
        "aux": 5.0,
    }


def test_without_weights_declared_keys_are_summed():
    output = total({"mel": value(2.0), "kl": value(3.0)}, loss_keys=("mel", "kl"))
    assert output.loss.item() == 5.0


def test_loss_keys_are_an_allow_list():
    with pytest.raises(ValueError, match="no loss"):
        total({"other_loss": value(1.0)})
    with pytest.raises(ValueError, match="no loss"):
        total({"loss": value(1.0)}, loss_keys=("mel",))


def test_nested_losses_come_first():
    output = total({"losses": {"mel": value(2.0)}, "mel": value(7.0)}, loss_keys=("mel",))
    assert output.loss.item() == 2.0
    output = total({"loss_dict": {"mel": value(3.0)}, "mel": value(7.0)}, loss_keys=("mel",))
    assert output.loss.item() == 3.0


def test_gradient_reaches_every_weighted_component():
    mel, kl = value(2.0), value(3.0)
    total(
        {"mel": mel, "kl": kl}, loss_keys=("mel", "kl"), loss_weights={"mel": 45.0}
    ).loss.backward()
    assert (mel.grad.item(), kl.grad.item()) == (45.0, 1.0)


@pytest.mark.parametrize(
    ("raw", "fields", "kind", "message"),
    [
        ({"logits": torch.zeros(3)}, {}, ValueError, "no generic fallback.*logits"),
        ((), {}, ValueError, "no loss"),
        ((None, torch.zeros(2)), {}, ValueError, "no loss"),
        (object(), {}, ValueError, "no loss"),
        ({"loss": 1.0}, {}, TypeError, "must be a torch.Tensor, got float"),
        ("text", {}, ValueError, "no loss"),
        (torch.zeros(3, requires_grad=True), {}, ValueError, r"scalar, got shape \(3,\)"),
        (torch.zeros(1, requires_grad=True), {}, ValueError, "scalar"),
        ({"loss": torch.tensor(1.0)}, {}, ValueError, "does not depend on any trainable"),
        (
            {"mel": value(1.0)},
            {"loss_keys": ("mel", "kl"), "loss_weights": {"kl": 1.0}},
            ValueError,
            "returned no kl",
        ),
        ({"a": 1.0, "b": 2.0}, {"loss_keys": ("a", "b")}, TypeError, "'a' must be a torch.Tensor"),
        ({"loss": value(1.0), "num_items": torch.ones(2)}, {}, TypeError, "num_items"),
        ({"loss": value(1.0), "num_items": True}, {}, TypeError, "num_items"),
        ({"loss": value(1.0), "num_items": "8"}, {}, TypeError, "num_items"),
    ],
)
def test_broken_contracts_are_named(raw, fields, kind, message):
    with pytest.raises(kind, match=message):
        total(raw, **fields)


def test_prediction_needs_no_loss():
    logits = torch.zeros(2, 3)
    for raw in (logits, (logits,), {"logits": logits}):
        output = normalise(raw, rule(), training=False)
        assert output.loss is None
        assert output.logits is logits
    output = normalise({"loss": torch.tensor(1.0)}, rule(), training=False)
    assert output.loss.item() == 1.0


def test_non_finite_losses_pass_through():
    """The Trainer asks once, for all ranks; asking here would cost a synchronisation."""
    assert torch.isnan(total({"loss": value(float("nan"))}).loss)


def test_own_metadata_is_added_to_that_of_the_phase():
    raw = SpeechTrainingOutput(loss=value(1.0), metadata={"texts": ["a"]})
    assert total(raw).metadata == {"model_type": "toy", "texts": ["a"]}


def test_transformers_outputs_are_accepted():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    loss, logits = value(1.0), torch.zeros(1, 2, 3)
    output = total(outputs.CausalLMOutput(loss=loss, logits=logits))
    assert output.loss is loss
    assert output.logits is logits

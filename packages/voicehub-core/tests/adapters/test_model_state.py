"""Model tensors survive safetensors, ties included, and load all or nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from voicehub.adapters.model_state import export_tensors, load_tensors, tied_names


class Tied(nn.Module):
    """An embedding tied to the output layer, a strided view, and overlapping buffers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight
        flat = torch.arange(6.0)
        self.register_buffer("first", flat[:4])
        self.register_buffer("second", flat[2:])
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


def randomised(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return module


def test_tied_tensors_are_stored_once_and_restored(tmp_path):
    model = randomised(Tied())
    state = export_tensors(model)
    assert "out.weight" not in state
    assert tied_names(model) == {"out.weight": "embed.weight"}
    save_file(state, tmp_path / "model.safetensors")
    other = randomised(Tied())
    load_tensors(other, load_file(tmp_path / "model.safetensors"))
    assert other.out.weight is other.embed.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_tensors_are_contiguous_and_share_no_memory():
    state = export_tensors(Tied())
    assert all(tensor.is_contiguous() for tensor in state.values())
    assert all(not tensor.requires_grad for tensor in state.values())
    pointers = [tensor.untyped_storage().data_ptr() for tensor in state.values()]
    assert len(set(pointers)) == len(pointers)
    assert "scratch" not in state


def test_whole_tensors_are_not_copied():
    model = nn.Linear(3, 3)
    assert export_tensors(model)["weight"].data_ptr() == model.weight.data_ptr()


def test_a_state_saved_tied_does_not_silently_fit_an_untied_model():
    state = export_tensors(Tied())
    untied = Tied()
    untied.out.weight = nn.Parameter(torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"out\.weight: missing"):
        load_tensors(untied, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("norm.weight"), r"norm\.weight: missing"),
        (lambda s: s.update(extra=torch.zeros(1)), "extra: not part of the model"),
        (lambda s: s.update({"norm.weight": torch.zeros(4)}), r"shape \(4,\), the model has \(3,"),
        (lambda s: s.update({"norm.weight": torch.zeros(3).double()}), "dtype torch.float64"),
        (lambda s: s.update({"norm.weight": [0.0]}), "expected a tensor, got list"),
        (
            lambda s: s.update({"embed.wieght": s.pop("embed.weight")}),
            r"Did you mean 'embed\.wieght'",
        ),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    model, state = Tied(), export_tensors(randomised(Tied()))
    before = copy.deepcopy(model.state_dict())
    change(state)
    with pytest.raises(ValueError, match=message):
        load_tensors(model, state)
    for name, tensor in model.state_dict().items():
        assert torch.equal(before[name], tensor), name


def test_not_strict_loads_what_fits_and_still_refuses_other_shapes():
    model = nn.Linear(2, 2)
    load_tensors(model, {"weight": torch.ones(2, 2).double(), "odd": torch.ones(1)}, strict=False)
    assert torch.equal(model.weight, torch.ones(2, 2))
    assert model.weight.dtype == torch.float32
    with pytest.raises(ValueError, match="shape"):
        load_tensors(model, {"weight": torch.ones(3, 2)}, strict=False)
    with pytest.raises(ValueError, match="dtype"):
        load_tensors(model, {"weight": torch.ones(2, 2).long()}, strict=False)


def test_state_that_is_no_tensor_is_refused_by_name():
    class Odd(nn.Module):
        def get_extra_state(self):
            return {"a": 1}

        def set_extra_state(self, state):
            pass

    with pytest.raises(ValueError, match="_extra_state"):
        export_tensors(Odd())


def test_tensor_extra_state_round_trips():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return torch.tensor(self.count)

        def set_extra_state(self, state):
            self.count = int(state)

    first, second = Counted(), Counted()
    first.count = 7
    load_tensors(second, export_tensors(first))
    assert second.count == 7

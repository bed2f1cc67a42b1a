"""A sound family holds every check; each check finds the fault it is for, and names it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from voicehub.adapters.base import TrainingAdapter
from voicehub.errors import ConfigurationError, RecipeError
from voicehub.testing import CHECKS, ConformanceCase, run_check
from voicehub.testing.runner import ConformanceError


def fails(case: ConformanceCase, check: str, directory: Path, words: str) -> None:
    """The check finds the fault and its message says what is wrong."""
    with pytest.raises(ConformanceError, match=words):
        run_check(case, check, directory)


@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_family_holds_every_check(toy: SimpleNamespace, check: str, tmp_path: Path) -> None:
    outcome = run_check(toy.Case(), check, tmp_path)
    assert outcome.verdict == "held"
    assert outcome.evidence


def test_an_adapter_of_another_spec(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Other(toy.Case):
        def build(self, *, dropout: float = 0.0) -> TrainingAdapter:
            import dataclasses

            spec = dataclasses.replace(toy.SPEC, summary="another")
            return TrainingAdapter(toy.Wrapper("tiny"), spec)

    fails(Other(), "spec", tmp_path, "adapter of another spec")


def test_a_gradient_that_never_arrives(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    class Cut(toy.Model):
        def __init__(self, dropout: float = 0.0) -> None:
            super().__init__(dropout)
            self.unused = torch.nn.Linear(2, 2)

    fails(with_network(Cut), "gradients", tmp_path, r"no gradient reaches unused\.bias, unused")
    declared = {"unreached": {"unused.*": "kept for later"}}
    outcome = run_check(with_network(Cut, **declared), "gradients", tmp_path)
    assert "2 declared" in outcome.evidence


def test_a_stale_declaration_of_unreached_parameters(
    with_network: Any, toy: SimpleNamespace, tmp_path: Path
) -> None:
    case = with_network(toy.Model, unreached={"output.*": "because"})
    fails(case, "gradients", tmp_path, "gradients do reach")


def test_a_parameter_with_two_owners(with_adapter: Any, tmp_path: Path) -> None:
    def setup(self: Any) -> None:
        TrainingAdapter.setup(self)
        self.routes = {**self.routes, "again": self.routes["default"]}

    with pytest.raises((ConformanceError, RecipeError), match="again|owners"):
        run_check(with_adapter(setup=setup), "ownership", tmp_path)


def test_an_update_that_moves_what_it_does_not_own(with_adapter: Any, tmp_path: Path) -> None:
    def on_optimizer_step(self: Any, names: Any, step: int) -> None:
        with torch.no_grad():
            self.module.encoder[0].bias.add_(1.0)

    case = with_adapter(on_optimizer_step=on_optimizer_step)
    fails(case, "update", tmp_path / "a", r"changed encoder\.0\.bias")
    fails(case, "frozen", tmp_path / "b", r"frozen, but changed: encoder\.0\.bias")


def test_frozen_batch_norm_in_training_mode(with_adapter: Any, tmp_path: Path) -> None:
    def train_mode(self: Any) -> None:
        self.module.train()

    case = with_adapter(train_mode=train_mode)
    fails(case, "frozen", tmp_path, r"encoder\.1\.(num_batches|running)")


def test_an_evaluation_that_leaves_traces(with_adapter: Any, tmp_path: Path) -> None:
    def evaluation_rows(self: Any, output: Any, inputs: Any, info: Any) -> list[Any]:
        with torch.no_grad():
            self.module.output.bias.add_(0.1)
        return []

    case = with_adapter(evaluation_rows=evaluation_rows)
    fails(case, "evaluation", tmp_path, r"ends elsewhere: .*output\.bias")


def test_recipe_state_that_no_checkpoint_holds(with_adapter: Any, tmp_path: Path) -> None:
    def training_step_loss(self: Any, inputs: Any, phase: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        output = self.forward_component(inputs, phase)
        return {**output, "loss": output["loss"] * self.calls}

    case = with_adapter(training_step_loss=training_step_loss)
    fails(case, "checkpoint", tmp_path, "the resumed run ends elsewhere")


def test_an_export_that_loses_digits(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Rounded(toy.Wrapper):
        def _save_family_files(self, directory: Path) -> None:
            state = {
                name: value.half().to(value.dtype) if value.is_floating_point() else value
                for name, value in self.model.state_dict().items()
            }
            save_file(state, directory / "model.safetensors")

    class Case(toy.Case):
        wrapper = Rounded

    fails(Case(), "export", tmp_path, r"loss of the reloaded model differs by \d")


def test_a_loss_that_does_not_count_its_items(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    class Uncounted(toy.Model):
        def loss(self, logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Any]:
            return {"loss": super().loss(logits, y, mask)["loss"]}

    fails(with_network(Uncounted), "accumulation", tmp_path, "Does the loss count its num_items")


class _PaddedMean:
    """The mean over all frames, padding included: what a mate's length decides."""

    def loss(self, logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Any]:
        errors = (logits - y).masked_fill(~mask, 0.0).square()
        return {"loss": errors.mean(), "num_items": mask.sum()}


def test_a_loss_that_depends_on_batch_mates(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    network = type("Mean", (_PaddedMean, toy.Model), {})
    fails(with_network(network), "padding_mates", tmp_path, "beside a longer item, the")
    exempt = with_network(network, exemptions={"padding_mates": "a mean over the batch"})
    outcome = run_check(exempt, "padding_mates", tmp_path)
    assert (outcome.verdict, outcome.evidence) == ("declared", "a mean over the batch")
    # Elsewhere the kit gives such a family batches of one length.
    assert run_check(exempt, "accumulation", tmp_path).verdict == "held"


def test_an_exemption_from_what_holds(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    case = with_network(toy.Model, exemptions={"padding_mates": "group norm"})
    fails(case, "padding_mates", tmp_path, "though exempt: 'group norm'. Remove the exemption")


def test_padding_that_a_layer_reads(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    class Unmasked(toy.Model):
        def encode(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.encoder(x.flatten(0, 1)).view(*x.shape[:2], 4)

    fails(with_network(Unmasked), "padding_garbage", tmp_path, "1000 in the padding of x")


def test_a_length_formula_that_is_off_by_one(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Case(toy.Case):
        def output_lengths(self, adapter: Any, inputs: Any) -> Tensor:
            return super().output_lengths(adapter, inputs) - 1

    fails(Case(), "lengths", tmp_path, "length 3 has 3 outputs; the formula says 2")


def test_a_missing_answer_must_be_declared(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Case(toy.Case):
        def output_lengths(self, adapter: Any, inputs: Any) -> Tensor:
            return ConformanceCase.output_lengths(self, adapter, inputs)

    fails(Case(), "lengths", tmp_path, r"Override it, or say why in exemptions\['lengths'\]")
    Case.exemptions = {"lengths": "one output a clip"}
    assert run_check(Case(), "lengths", tmp_path).verdict == "declared"


def test_audio_taken_at_any_rate(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Case(toy.Case):
        def read_audio(self, path: Path) -> np.ndarray[Any, Any]:
            return np.frombuffer(path.read_bytes()[44:], np.int16)

    fails(Case(), "sample_rate", tmp_path, "another rate passes as it is")


def test_a_refusal_that_does_not_name_the_rates(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Case(toy.Case):
        def read_audio(self, path: Path) -> np.ndarray[Any, Any]:
            if path.name.startswith("wrong"):
                raise ConfigurationError("wrong rate")
            return super().read_audio(path)

    fails(Case(), "sample_rate", tmp_path, "must name both 8000 and 16000")


def test_draws_that_depend_on_the_worker(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Unkeyed(toy.Noise):
        generator = np.random.default_rng(0)

        def get_item(self, index: int, key: Any) -> dict[str, Tensor]:
            item = self.items[index]
            return {**item, "x": item["x"] + float(self.generator.random())}

    class Case(toy.Case):
        def dataset(self, size: int, seed: int) -> Any:
            return Unkeyed(super().dataset(size, seed).items)

    fails(Case(), "workers", tmp_path, r"batches \[.*\] differ between 0 and 1 workers")


def test_a_loss_that_ignores_which_target_belongs_where(
    toy: SimpleNamespace, with_network: Any, tmp_path: Path
) -> None:
    class Blind(toy.Model):
        """Fits the mean of the targets, far from which it begins."""

        def __init__(self, dropout: float = 0.0) -> None:
            super().__init__(dropout)
            torch.nn.init.constant_(self.output.bias, 3.0)

        def encode(self, x: Tensor, mask: Tensor) -> Tensor:
            return super().encode(torch.zeros_like(x), mask)

    fails(with_network(Blind), "learning", tmp_path, "training on shuffled targets does as well")


def test_a_rate_at_which_nothing_is_learnt(toy: SimpleNamespace, tmp_path: Path) -> None:
    class Case(toy.Case):
        training = {"learning_rate": 1e-9}  # noqa: RUF012

    fails(Case(), "learning", tmp_path, re.escape("does not fall below 0.8 of its start"))


def test_an_unknown_check_names_the_nearest(toy: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'gradients'"):
        run_check(toy.Case(), "gradient", tmp_path)

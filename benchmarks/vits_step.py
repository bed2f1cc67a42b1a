"""One step of VITS, both phases, beside a plain PyTorch loop over the same modules.

``vits/tiny`` at batch 8 on utterances of 3 to 6 seconds that the benchmark makes for itself. Ours
is a run of the Trainer. After each of its steps the plain loop makes one of its own, on copies of
the same modules, on the same batch, with the same losses: the way published trainers are written,
with one generator forward a step, the published Cython package for the alignment search, the
discriminators called for recorded and for generated audio in turn, and AdamW as it comes. Medians
of both are compared, and the share of each part is printed. Both run on one thread and their CPU
time is taken: that is the same on a busy machine, and one loop after the other cancels drift.

Run it alone with ``python benchmarks/vits_step.py [--steps 12 --json]``.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import yaml
from harness.corpus import write_corpus
from torch import Tensor

from voicehub import Trainer, TrainerCallback
from voicehub_vits import losses, objective
from voicehub_vits.config import VitsRunConfig
from voicehub_vits.experiment import build_experiment
from voicehub_vits.network import generator as network
from voicehub_vits.network.alignment import gaussian_scores
from voicehub_vits.network.layout import train_as_before

BATCH = 8
WARM_UP = 2
RATE = 22050
PARTS = (
    "generator forward",
    "alignment",
    "discriminator forward",
    "discriminator backward",
    "generator losses",
    "generator backward",
    "optimisers",
)


def clock_now() -> float:
    """CPU seconds of the process: with one thread, what a step takes on an idle machine."""
    return time.process_time()


class Clock:
    """Seconds by part; what runs inside another part is taken off that."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[float] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._open.append(0.0)
        began = clock_now()
        try:
            yield
        finally:
            spent = clock_now() - began
            self.seconds[name] += spent - self._open.pop()
            if self._open:
                self._open[-1] += spent

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time under ``name``."""

        def run(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*arguments, **options)

        return run


@dataclass
class Measurement:
    """Seconds of each step and of its parts, of both loops, and their losses."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    parts: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {"ours": [], "plain": []}
    )
    losses: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "plain": []})

    @property
    def ratio(self) -> float:
        """Median of ours over the median of the plain loop."""
        return statistics.median(self.ours) / statistics.median(self.plain)

    def share(self, loop: str, part: str) -> float:
        """Median seconds of a part."""
        return statistics.median(found.get(part, 0.0) for found in self.parts[loop])


def configuration(folder: Path, steps: int, dropout: bool = True) -> VitsRunConfig:
    """``vits/tiny`` on the corpus."""
    preset = files("voicehub_vits.presets").joinpath("tiny.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(preset)
    values.pop("defaults")
    values["data"]["train"] = str(write_corpus(folder, BATCH, rate=RATE))
    values["data"]["batches"] = {"batch_size": BATCH}
    values["training"].update(
        output_dir=str(folder / "run"), max_steps=steps, logging_steps=steps, use_cpu=True
    )
    if not dropout:
        rates = values["model"]["dropout"]
        values["model"]["dropout"] = dict.fromkeys([*rates, "wavenet_dropout"], 0.0)
    return VitsRunConfig.model_validate(values)


class PlainLoop:
    """A training loop as one writes it by hand, on copies of a wrapper's modules."""

    def __init__(self, wrapper: Any, spectrogram: Any, config: VitsRunConfig) -> None:
        self.model = copy.deepcopy(wrapper.model)
        train_as_before(self.model)
        self.discriminator = copy.deepcopy(wrapper.discriminator)
        self.spectrogram = spectrogram
        self.weights = config.model.weights
        self.segment_frames = wrapper.acoustic.segment_frames
        training = config.training
        options = {
            "lr": training.learning_rate,
            "betas": (training.adam_beta1, training.adam_beta2),
            "eps": training.adam_epsilon,
            "weight_decay": training.weight_decay,
        }
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.generator_optimizer = torch.optim.AdamW(trained, **options)
        self.discriminator_optimizer = torch.optim.AdamW(self.discriminator.parameters(), **options)

    def step(self, inputs: Mapping[str, Any], clock: Clock) -> tuple[float, float]:
        """Both phases; returns the losses of discriminator and generator."""
        self.model.train()
        self.discriminator.train()
        real = inputs["segments"]
        with clock.part("generator forward"):
            rendered = self.render(inputs, clock)
        with clock.part("discriminator forward"):
            real_logits, _ = self.discriminator(real)
            made_logits, _ = self.discriminator(rendered.audio.detach())
            judged = losses.discriminator_loss(real_logits, made_logits)
            discriminator_loss = self.weights.discriminator * judged.loss
        with clock.part("discriminator backward"):
            self.discriminator_optimizer.zero_grad()
            discriminator_loss.backward()
        with clock.part("optimisers"):
            self.norm(self.discriminator)
            self.discriminator_optimizer.step()
        with clock.part("generator losses"):
            generator_loss = self.generator_loss(rendered, inputs)
        with clock.part("generator backward"):
            self.generator_optimizer.zero_grad()
            generator_loss.backward()
        with clock.part("optimisers"):
            self.norm(self.model)
            self.generator_optimizer.step()
        return discriminator_loss.item(), generator_loss.item()

    @staticmethod
    def norm(module: torch.nn.Module) -> float:
        """The norm of the gradient, which published trainers log, and ours checks."""
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    def render(self, inputs: Mapping[str, Any], clock: Clock) -> network.Rendered:
        """The generator's forward, the alignment as a matrix throughout."""
        from monotonic_alignment_search import maximum_path

        model = self.model
        conditioning = network.conditioning_of(model, inputs)
        text, means, logs, text_mask = network.encode_text(
            model, inputs["input_ids"], inputs["text_lengths"]
        )
        spectrogram = inputs["spectrogram"]
        frames = spectrogram.shape[2]
        frame_mask = network.length_mask(inputs["frame_lengths"], frames).to(spectrogram.dtype)
        latents, posterior_logs = network.posterior(
            model, spectrogram, frame_mask, inputs["posterior_noise"], conditioning
        )
        flowed = model.flow(latents, frame_mask, conditioning)
        with clock.part("alignment"), torch.no_grad():
            scores = gaussian_scores(flowed, means, logs)
            path = maximum_path(scores.contiguous(), text_mask.transpose(1, 2) * frame_mask)
        segments = network.cut(latents, inputs["segment_starts"], self.segment_frames)
        return network.Rendered(
            audio=model.decoder(segments, conditioning),
            flowed=flowed,
            posterior_logs=posterior_logs,
            prior_means=means @ path,
            prior_logs=logs @ path,
            frame_mask=frame_mask,
            text=text,
            text_mask=text_mask,
            durations=path.sum(2)[:, None],
            token_of_frame=torch.empty(0),
            conditioning=conditioning,
        )

    def generator_loss(self, rendered: network.Rendered, inputs: Mapping[str, Any]) -> Tensor:
        """All terms, the discriminators called for recorded and generated audio in turn."""
        _, real_maps = self.discriminator(inputs["segments"])
        logits, maps = self.discriminator(rendered.audio)
        terms = objective.reconstruction_terms(self.model, self.spectrogram, rendered, inputs)
        weights = self.weights
        total: Tensor = (
            weights.adversarial * losses.generator_loss(logits).loss
            + weights.feature_matching * losses.feature_matching_loss(real_maps, maps)
            + weights.mel * terms["mel"]
            + weights.duration * terms["duration"]
            + weights.kl * terms["kl"]
        )
        return total


class Interleaved(TrainerCallback):
    """Times the Trainer's steps, and makes one of the plain loop after each."""

    def __init__(self, config: VitsRunConfig) -> None:
        self.config = config
        self.result = Measurement()
        self.trainer: Trainer | None = None
        self._plain: PlainLoop | None = None
        self._clock = Clock()
        self._inputs: Any = None
        self._found: list[float] = []
        self._began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        assert self.trainer is not None
        adapter = self.trainer.adapter
        self._plain = PlainLoop(adapter.model, adapter.spectrogram, self.config)
        self._watch(adapter, self.trainer.strategy)

    def _watch(self, adapter: Any, strategy: Any) -> None:
        """Put the clock around the parts of our step, and keep what it was given and found."""
        loss, backward, step = (
            adapter.training_step_loss,
            strategy.backward,
            strategy.optimizer_step,
        )

        def watched_loss(inputs: Any, phase: Any) -> Any:
            self._inputs = inputs
            kind = "discriminator forward" if phase.name == "discriminator" else "generator losses"
            with self._clock.part(kind):
                output = loss(inputs, phase)
            self._found.append(float(output.loss.detach()))
            return output

        def watched_backward(*arguments: Any, **options: Any) -> Any:
            kind = "discriminator" if len(self._found) == 1 else "generator"
            with self._clock.part(f"{kind} backward"):
                return backward(*arguments, **options)

        adapter.training_step_loss = watched_loss
        strategy.backward = watched_backward
        strategy.optimizer_step = lambda *a, **o: self._clock.timed("optimisers", step)(*a, **o)

    def on_step_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self._clock, self._found = Clock(), []
        self._began = clock_now()

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        assert self._plain is not None
        spent = clock_now() - self._began
        clock = Clock()
        began = clock_now()
        found = self._plain.step(self._inputs, clock)
        plain = clock_now() - began
        self.result.losses["ours"] += self._found
        self.result.losses["plain"] += found
        if state.global_step <= WARM_UP:
            return
        for name, seconds, parts in (("ours", spent, self._clock), ("plain", plain, clock)):
            getattr(self.result, name).append(seconds)
            self.result.parts[name].append(dict(parts.seconds))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Time the generator's forward and the alignment search where our adapter calls them."""
        from voicehub_vits import adapter

        render, align = adapter.render, network.align
        adapter.render = lambda *a, **o: self._clock.timed("generator forward", render)(*a, **o)
        network.align = lambda *a, **o: self._clock.timed("alignment", align)(*a, **o)
        try:
            yield
        finally:
            adapter.render, network.align = render, align


def measure(steps: int, folder: Path, dropout: bool = True) -> Measurement:
    """Run both loops for a number of steps after warming up."""
    config = configuration(folder, steps + WARM_UP, dropout)
    experiment = build_experiment(config)
    watcher = Interleaved(config)
    trainer = Trainer(
        model=experiment.model,
        args=config.training,
        data_collator=experiment.data_collator,
        train_dataset=experiment.train_dataset,
        train_plan=experiment.train_plan,
        callbacks=[watcher],
    )
    watcher.trainer = trainer
    with watcher.inside():
        trainer.train()
    return watcher.result


def table(result: Measurement) -> str:
    """The figures as text."""
    totals = {name: statistics.median(getattr(result, name)) for name in ("ours", "plain")}
    lines = [f"{'ms a step':26}{'ours':>10}{'':>8}{'plain':>10}{'':>8}{'ratio':>8}"]
    rest = dict(totals)
    for part in PARTS:
        ours, plain = result.share("ours", part), result.share("plain", part)
        rest = {"ours": rest["ours"] - ours, "plain": rest["plain"] - plain}
        lines.append(_row(part, ours, plain, totals))
    lines.append(_row("everything else", rest["ours"], rest["plain"], totals))
    lines.append(_row("one step", totals["ours"], totals["plain"], totals))
    return "\n".join(lines)


def _row(name: str, ours: float, plain: float, totals: Mapping[str, float]) -> str:
    shares = (ours / totals["ours"], plain / totals["plain"])
    ratio = f"{ours / plain:8.2f}" if plain > 1e-3 else f"{'':8}"
    return f"{name:26}{1e3 * ours:10.1f}{shares[0]:8.0%}{1e3 * plain:10.1f}{shares[1]:8.0%}{ratio}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.steps, Path(folder))
    print(table(result))
    if options.json:
        parts = {
            loop: {part: round(result.share(loop, part), 5) for part in PARTS}
            for loop in result.parts
        }
        seconds = {"ours": result.ours, "plain": result.plain}
        print(json.dumps({"ratio": round(result.ratio, 4), "seconds": seconds, "parts": parts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

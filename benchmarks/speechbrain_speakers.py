"""speechbrain's own training code on a speaker model of ours: its Brain, data loading and loss.

The network below the embeddings, the recordings, their features and augmentation are ours, so that
what differs is the training. speechbrain's are the data set, the batches, the padding, the
classifier, the AAM loss, the loop, gradient clipping and its checks.

Run it alone with ``python benchmarks/speechbrain_speakers.py DATA`` (a folder with fsdd's
manifests) for the error rates after as many epochs as the preset trains.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from voicehub.cli.compose import compose_preset
from voicehub.cli.validate import validate_run
from voicehub.data.keyed_random import SampleKey
from voicehub_data.manifest import read_manifest
from voicehub_xvector.data import XVectorDataset
from voicehub_xvector.embedder import XVectorModel
from voicehub_xvector.experiment import build_experiment
from voicehub_xvector.metrics import verify_pairs
from voicehub_xvector.speechbrain_parts import speechbrain_part

TRAIN_SPEAKERS = ("george", "jackson", "nicolas", "theo")


def preset_config(data: Path, *overrides: str) -> Any:
    """The configuration of ``xvector/tiny`` on fsdd's four training speakers."""
    given = (
        f"data.train={data / 'train.jsonl'}",
        f"data.train_speakers=[{','.join(TRAIN_SPEAKERS)}]",
        "training.eval_strategy=no",
        "data.check=none",
    )
    return validate_run(compose_preset("xvector/tiny", [*given, *overrides]))[1]


def speechbrain_dataset(dataset: XVectorDataset, seed: int) -> Any:
    """Our items as a DynamicItemDataset; draws of augmentation are keyed as in our training."""
    data = speechbrain_part("dataio.dataset")
    pipeline = speechbrain_part("utils.data_pipeline")
    epochs = [0] * len(dataset)  # how often each item was asked for

    @pipeline.takes("position")
    @pipeline.provides("features", "label")
    def item(position: int) -> Any:
        key = SampleKey(seed, epochs[position], position, position)
        epochs[position] += 1
        found = dataset.get_item(position, key)
        yield found.prepared.rows
        yield torch.tensor([found.label])

    durations = dataset.planning_durations
    rows = {f"{n:06d}": {"position": n, "duration": durations[n]} for n in range(len(dataset))}
    made = data.DynamicItemDataset(rows)
    made.add_dynamic_item(item)
    made.set_output_keys(["id", "features", "label"])
    return made


class Classifier(nn.Module):
    """Network, speechbrain's cosine classifier."""

    def __init__(self, head: nn.Module, size: int, classes: int) -> None:
        super().__init__()
        ecapa = speechbrain_part("lobes.models.ECAPA_TDNN")
        self.head = head
        self.classifier = ecapa.Classifier(size, lin_neurons=size, out_neurons=classes)


def make_brain(
    model: XVectorModel,
    config: Any,
    steps: int,
    *,
    on_epoch: Callable[[str], None] = lambda what: None,
) -> Any:
    """A Brain with the optimiser, schedule and clipping of the configuration."""
    core = speechbrain_part("core")
    losses = speechbrain_part("nnet.losses")
    loss = config.model.loss
    training = config.training
    objective = losses.LogSoftmaxWrapper(losses.AdditiveAngularMargin(loss.margin, loss.scale))
    network = model.network
    modules = Classifier(network.head, model.embedding_size, len(model.classes))
    warm = training.warmup_ratio * steps

    class SpeakerBrain(core.Brain):  # type: ignore[name-defined, misc]
        def on_stage_start(self, stage: Any, epoch: int | None = None) -> None:
            on_epoch("begin")

        def on_stage_end(self, stage: Any, stage_loss: float, epoch: int | None = None) -> None:
            self.last_loss = stage_loss
            on_epoch("end")

        def compute_forward(self, batch: Any, stage: Any) -> Tensor:
            features, shares = batch.features
            lengths = (shares * features.shape[1]).round().long()
            embeddings = self.modules.network.head(features, lengths)
            outputs: Tensor = self.modules.network.classifier(embeddings.unsqueeze(1))
            return outputs

        def compute_objectives(self, predictions: Tensor, batch: Any, stage: Any) -> Tensor:
            value: Tensor = objective(predictions, batch.label.data)
            return value

        def init_optimizers(self) -> None:
            super().init_optimizers()
            self.schedule = torch.optim.lr_scheduler.LambdaLR(
                self.optimizer,
                lambda step: min(step / warm if warm else 1.0, max(0.0, 1 - step / steps)),
            )

        def on_fit_batch_end(self, *arguments: Any) -> None:
            self.schedule.step()

    options = {"device": "cpu", "max_grad_norm": training.max_grad_norm, "noprogressbar": True}
    optimiser = lambda parameters: torch.optim.AdamW(  # noqa: E731
        parameters, lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
    )
    return SpeakerBrain(
        {"network": modules}, opt_class=optimiser, run_opts=options, hparams={"unused": None}
    )


def embeddings_of(head: nn.Module, model: XVectorModel, manifest: Path) -> tuple[Any, list[str]]:
    """Embeddings and speakers of a manifest's rows."""
    rows = read_manifest(manifest, role="eval").rows
    dataset = XVectorDataset(rows, model.classes, model.front_end)
    head.eval()
    found = []
    with torch.inference_mode():
        for index in range(len(dataset)):
            batch = model.front_end.batch([dataset[index].prepared])
            found.append(head(**batch)[0].numpy())
    return np.stack(found), [str(row.speaker) for row in rows]


def error_rates(embeddings: Any, speakers: Sequence[str]) -> dict[str, float]:
    """EER over all pairs, over those of the trained speakers, and over those of the others."""
    known = [n for n, name in enumerate(speakers) if name in TRAIN_SPEAKERS]
    unseen = [n for n, name in enumerate(speakers) if name not in TRAIN_SPEAKERS]
    groups = {"all": list(range(len(speakers))), "seen": known, "unseen": unseen}
    return {
        f"eer_{name}": verify_pairs(embeddings[rows], [speakers[n] for n in rows]).eer
        for name, rows in groups.items()
    }


def train(data: Path, *, epochs: int | None = None, batch_size: int = 32) -> dict[str, float]:
    """Train with speechbrain and measure on fsdd's test split."""
    extra = () if epochs is None else (f"training.num_train_epochs={epochs}",)
    config = preset_config(data, *extra)
    torch.manual_seed(config.training.seed)
    experiment = build_experiment(config)
    model, dataset = experiment.model, experiment.train_dataset
    assert isinstance(model, XVectorModel) and isinstance(dataset, XVectorDataset)
    rounds = int(config.training.num_train_epochs)
    steps = rounds * -(-len(dataset) // batch_size)
    brain = make_brain(model, config, steps)
    rows = speechbrain_dataset(dataset, config.training.effective_data_seed)
    began = time.perf_counter()
    loader = {"batch_size": batch_size, "shuffle": True, "num_workers": 0}
    brain.fit(range(1, rounds + 1), rows, train_loader_kwargs=loader)
    seconds = time.perf_counter() - began
    vectors, speakers = embeddings_of(model.network.head, model, data / "test.jsonl")
    return {**error_rates(vectors, speakers), "seconds": seconds, "loss": brain.last_loss}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train xvector/tiny with speechbrain's Brain.")
    parser.add_argument("data", type=Path, help="folder of fsdd")
    parser.add_argument("--epochs", type=int, help="as many as the preset, by default")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args(arguments)
    found = train(options.data, epochs=options.epochs, batch_size=options.batch_size)
    print(
        f"EER {100 * found['eer_seen']:.2f} % among the trained speakers, "
        f"{100 * found['eer_unseen']:.2f} % among the others, {100 * found['eer_all']:.2f} % among "
        f"all, {found['seconds']:.0f} s"
    )
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

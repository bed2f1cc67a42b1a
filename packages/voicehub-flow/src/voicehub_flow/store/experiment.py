"""From a run configuration to everything that ``voicehub train`` needs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from voicehub.adapters.experiment import Experiment, FinalStep
from voicehub.data.plan import FixedSizePlan
from voicehub.errors import ConfigurationError, UnsupportedTrainingError
from voicehub.models.sampling import Prompt
from voicehub.specs.registry import get_training_spec
from voicehub.strategies.environment import read_environment
from voicehub.trainer.arguments import TrainingArguments
from voicehub.trainer.averaging import AVERAGED_MODEL
from voicehub_flow.multimodal.model import MultimodalFlow
from voicehub_flow.objective import AudioVisualNull, LogitNormalTime
from voicehub_flow.sampling.steps import Example, final_steps, spread
from voicehub_flow.store import layout
from voicehub_flow.store.collate import StoreCollator
from voicehub_flow.store.config import MultimodalArchitecture, StoreDataConfig, StoreRunConfig
from voicehub_flow.store.dataset import StoreDataset
from voicehub_flow.store.global_batch import split_global_batch
from voicehub_flow.store.mixing import MixturePlan
from voicehub_flow.store.null_text import null_text_of
from voicehub_flow.store.reader import open_store
from voicehub_flow.store.sets import ClipSet, default_name, open_set
from voicehub_flow.store.shapes import FeatureShapes
from voicehub_flow.store.verify import require_sound

#: Sizes of video features where no store has any: the null conditions still have a shape.
_NO_VIDEO = {"clip_frames": 8, "clip_dim": 16, "sync_frames": 24, "sync_dim": 16}


def build_experiment(config: StoreRunConfig) -> Experiment:
    """Open and check the stores, settle sizes and batches, describe the model.

    Raises:
        UnsupportedTrainingError: the model type is known for inference alone.
        ConfigurationError: settings contradict each other or the stores.
        DataError: a store cannot be trained on; the message names it, causes and fixes.
    """
    _require_trainable(config.model_type)
    data = config.data
    shapes = resolve_shapes(config.model.architecture, data)
    train = [
        _open(data, part, f"data.train.{number}", default_name(part.path, number), shapes)
        for number, part in enumerate(data.train)
    ]
    evals = {
        name: _open(data, part, f"data.eval.{name}", name, shapes)
        for name, part in data.eval.items()
    }
    _settle_batches(config)
    stores = [part.store for part in train]
    null_text = null_text_of(
        data.null_text, stores, (shapes.text_tokens, shapes.text_dim), "data.null_text"
    )
    collator = StoreCollator(
        shapes,
        LogitNormalTime(config.model.time.mean, config.model.time.scale),
        AudioVisualNull(config.model.null_condition_probability),
    )
    check = data.verify == "rows"
    plan = MixturePlan(
        [len(part) for part in train],
        [part.rate for part in train],
        config.training.per_device_train_batch_size,
        seed=config.training.effective_data_seed,
    )
    _note_mix(train, plan, config.training)
    _note_extractors(train[0], [*train[1:], *evals.values()])
    if not evals:
        train[0].report.notes.extend(config.evaluate_nothing())
    model = _model(config, shapes, train[0], null_text)
    datasets = {name: StoreDataset([part], check=check) for name, part in evals.items()}
    return Experiment(
        model=model,
        train_dataset=StoreDataset(train, check=check),
        eval_datasets=datasets,
        data_collator=collator,
        train_plan=plan,
        eval_plans={
            name: FixedSizePlan(len(dataset), data.eval_batch_size, shuffle=False)
            for name, dataset in datasets.items()
        },
        data_report=[part.report for part in (*train, *evals.values())],
        final_steps=_final_steps(config, train, evals, model),
        record=_record(train, evals, shapes, model),
        next_command=_next_command(train[0]),
    )


def _final_steps(
    config: StoreRunConfig,
    train: Sequence[ClipSet],
    evals: dict[str, ClipSet],
    model: MultimodalFlow,
) -> list[FinalStep]:
    """Clips of the first evaluation set, or of the first training set, made again."""
    after = config.after_training
    if "audio" not in model.artifact_config()["extractors"]:
        if after.prompts or after.metrics:
            raise ConfigurationError(
                "after_training asks for samples, but which extractor made the latents is not "
                "known, so they cannot be decoded: the store was not written by `voicehub features "
                "extract`. Leave out after_training.prompts and after_training.metrics."
            )
        train[0].report.notes.append(
            "no samples at the end: which extractor made the latents is not known"
        )
        return []
    part = next(iter(evals.values()), train[0])
    clips = StoreDataset([part])
    examples = [
        Example(
            Prompt(part.ids[position], features=clips.sample_id(position)),
            partial(_recording, model, clips, position),
            part.texts[position] or None,
        )
        for position in spread(after.samples, len(clips))
    ]
    return final_steps(after, config, examples)


def _recording(model: MultimodalFlow, clips: StoreDataset, position: int) -> tuple[Any, int]:
    """A clip as its latents sound: what the model could reach at best."""
    return model.decode(clips[position].mean[None])[0], model.sampling_rate


def resolve_shapes(sizes: MultimodalArchitecture, data: StoreDataConfig) -> FeatureShapes:
    """Sizes of features: those of the architecture, else those of the first store that has them.

    Raises:
        DataError: a store is no store.
        ConfigurationError: synchronisation features are no whole segments.
    """
    stores = [open_store(part.path) for part in data.train]
    found: dict[str, int] = dict(_NO_VIDEO)
    names = {"latent": layout.MEAN, "clip": layout.CLIP, "sync": layout.SYNC, "text": layout.TEXT}
    steps = {"latent": "frames", "clip": "frames", "sync": "frames", "text": "tokens"}
    for kind, tensor in names.items():
        shape = next((s.tensors[tensor].row_shape for s in stores if tensor in s.tensors), None)
        if shape is not None and len(shape) == 2:
            found |= {f"{kind}_{steps[kind]}": shape[0], f"{kind}_dim": shape[1]}
    given = {name: getattr(sizes, name) for name in FeatureShapes.__dataclass_fields__}
    shapes = FeatureShapes(**{name: given[name] or found[name] for name in given})
    if shapes.sync_frames % sizes.sync_segment:
        raise ConfigurationError(
            f"{shapes.sync_frames} synchronisation features are no multiple of "
            f"model.architecture.sync_segment {sizes.sync_segment}."
        )
    return shapes


def _require_trainable(model_type: str) -> None:
    spec = get_training_spec(model_type)
    if not spec.has_training_recipe:
        raise UnsupportedTrainingError(
            f"{model_type!r} is inference-only: {spec.summary} Train flow/v2a-small-16k, "
            "flow/v2a-small-44k, flow/v2a-medium-44k or flow/v2a-large-44k."
        )


def _open(
    data: StoreDataConfig, part: Any, setting: str, name: str, shapes: FeatureShapes
) -> ClipSet:
    found = open_set(
        name,
        part,
        setting=setting,
        expected=shapes.rows(),
        max_drop_fraction=data.max_drop_fraction,
    )
    if data.verify == "all":
        require_sound(found.store.directory)
        found.report.notes.append("every clip was compared with its checksums")
    return found


def _settle_batches(config: StoreRunConfig) -> None:
    """Make the training arguments reach the global batch exactly."""
    wanted, training = config.data.global_batch_size, config.training
    if wanted is None:
        return
    split = split_global_batch(wanted, _processes(training), training.per_device_train_batch_size)
    training.per_device_train_batch_size = split.per_device
    training.gradient_accumulation_steps = split.accumulation


def _processes(training: TrainingArguments) -> int:
    if training.strategy == "torch":
        return 1
    environment = read_environment()
    return 1 if environment is None else environment.world_size


def _note_mix(train: Sequence[ClipSet], plan: MixturePlan, training: TrainingArguments) -> None:
    for part, count, share in zip(train, plan.counts, plan.shares, strict=True):
        part.report.notes.append(
            f"rate {part.rate:g}: {count:,} draws an epoch, {100 * share:.1f} % of the mix"
        )
    processes = _processes(training)
    size, times = training.per_device_train_batch_size, training.gradient_accumulation_steps
    train[0].report.notes.append(
        f"global batch {size * times * processes}: {size} clips x {times} accumulated x "
        f"{processes} processes"
    )


def _note_extractors(first: ClipSet, others: Sequence[ClipSet]) -> None:
    """Say where features of one kind are numbers of different extractors."""
    known = {} if first.store.index is None else first.store.index.extractors
    for part in others:
        own = {} if part.store.index is None else part.store.index.extractors
        for kind in sorted(known.keys() & own.keys()):
            if own[kind]["identity"]["sha256"] != known[kind]["identity"]["sha256"]:
                part.report.notes.append(
                    f"its {kind} features are of another extractor than those of "
                    f"{first.name}, so that equal numbers mean different things. Extract both "
                    f"with one: `voicehub features extract`, {kind} from "
                    f"{first.store.directory / 'extractors' / kind}"
                )


def _model(
    config: StoreRunConfig, shapes: FeatureShapes, first: ClipSet, null_text: Any
) -> MultimodalFlow:
    index = first.store.index
    seconds = None if index is None else index.record.get("clip_seconds")
    return MultimodalFlow.from_config(
        config.model,
        shapes,
        first.store.latent_statistics(),
        null_text,
        model_type=config.model_type,
        seed=config.training.seed,
        extractors={} if index is None else index.extractors,
        beside=first.store.directory / "extractors",
        clip_seconds=seconds,
    )


def _record(
    train: Sequence[ClipSet],
    evals: dict[str, ClipSet],
    shapes: FeatureShapes,
    model: MultimodalFlow,
) -> dict[str, Any]:
    return {
        "stores": {part.name: part.fingerprint for part in (*train, *evals.values())},
        "shapes": shapes.to_dict(),
        "extractors": {
            kind: kept["identity"] for kind, kept in model.artifact_config()["extractors"].items()
        },
    }


def _next_command(first: ClipSet) -> Any:
    text = next((text for text in first.texts if text), "a sound")

    def command(directory: Path) -> str:
        say = shlex.join(["printf", "%s\\n", text])
        words = ["voicehub", "sample", "--run", str(directory.parent), "--prompts", "prompts.txt"]
        if directory.name == AVERAGED_MODEL:
            words += ["--weights", "ema"]
        return f"{say} > prompts.txt && {shlex.join([*words, '--out', 'samples'])}"

    return command

"""From prompts to conditions: texts through the text extractor, features from the run's stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from voicehub.errors import DataError
from voicehub.models.sampling import Prompt
from voicehub.suggest import did_you_mean
from voicehub_flow.multimodal.generation import GenerationConditions
from voicehub_flow.store.config import StoreDataConfig
from voicehub_flow.store.dataset import StoreDataset, StoreItem
from voicehub_flow.store.sets import ClipSet, default_name, open_set
from voicehub_flow.store.shapes import FeatureShapes

_KNOWN = ("num_frames", "guidance_scale", "steps", "method")


def open_sets(data: StoreDataConfig, shapes: FeatureShapes) -> list[ClipSet]:
    """The sets of a run, those for evaluation first: prompts name their clips."""
    named = [(name, part, f"data.eval.{name}") for name, part in data.eval.items()]
    named += [
        (default_name(part.path, number), part, f"data.train.{number}")
        for number, part in enumerate(data.train)
    ]
    return [
        open_set(
            name,
            part,
            setting=setting,
            expected=shapes.rows(),
            max_drop_fraction=data.max_drop_fraction,
        )
        for name, part, setting in named
    ]


class Asked(NamedTuple):
    """What a prompt asks for: its conditions, and frames where it follows a clip."""

    conditions: GenerationConditions
    frames: int | None


def asked_by(
    prompt: Prompt, sets: Sequence[ClipSet], encode: Callable[[Sequence[str]], Tensor]
) -> Asked:
    """What a prompt asks for.

    A prompt with features has the video and the length of that clip, and its text unless it brings
    one itself.

    Raises:
        DataError: the prompt asks for what the model does not know, or names no clip of the run.
    """
    for what in ("speaker", "language"):
        if getattr(prompt, what) is not None:
            raise DataError(
                f"prompt {prompt.id!r}: this model has no {what}; say it in the prompt's text."
            )
    for name in prompt.options:
        if name not in _KNOWN:
            raise DataError(
                f"prompt {prompt.id!r}: unknown option {name!r}.{did_you_mean(name, _KNOWN)}"
            )
    text = None if prompt.text is None else encode([prompt.text])
    if prompt.features is None:
        return Asked(GenerationConditions(text=text), None)
    item = _clip(prompt, sets)
    conditions = GenerationConditions(
        item.text[None] if text is None else text,
        None if item.clip is None else item.clip[None],
        None if item.sync is None else item.sync[None],
    )
    return Asked(conditions, len(item.mean))


def _clip(prompt: Prompt, sets: Sequence[ClipSet]) -> StoreItem:
    """The clip that a prompt names by its id, or by its set's name and its id."""
    wanted = str(prompt.features)
    if not sets:
        raise DataError(
            f"prompt {prompt.id!r} names features of a store, and no run says where it lies: "
            "sample with --run."
        )
    for part in sets:
        name = wanted.removeprefix(f"{part.name}/")
        if name in part.ids:
            return StoreDataset([part])[part.ids.index(name)]
    raise DataError(
        f"prompt {prompt.id!r}: no clip {wanted!r} in {', '.join(part.name for part in sets)}."
        f"{did_you_mean(wanted, [name for part in sets for name in part.ids[:1000]])}"
    )
